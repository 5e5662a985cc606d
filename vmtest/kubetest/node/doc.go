// Package node runs a real node for the tests of a package, beside kubetest's API
// server: kubelet, containerd, runc and a network for pods. What depends on how kubelet
// runs and probes pods is tested with it.
//
// kubelet is built as the API server is; containerd, runc and the network plugins are
// those that are installed. The node has a network namespace, a mount namespace and a
// cgroup of its own, and all it writes is in one state folder: nothing of the machine
// changes. Processes are the machine's, so that what is seen in the kernel has the
// numbers that everybody has. It ends with the process that started it, however that
// one ends.
//
//	var machine node.Shared
//
//	func TestMain(m *testing.M) { os.Exit(machine.Run(m)) }
//
//	func TestSomething(t *testing.T) {
//		n := machine.Node(t) // started by the first test that asks
//		n.Image(t, "local.test/app:1", testprogram.Build(t, "github.com/…/app"))
//		pod := n.Run(t, &corev1.Pod{…})
//		…
//	}
//
// The API server answers at the address it has outside as well, and at that of the
// service "kubernetes". There is no DNS, and other services than "kubernetes" lead nowhere.
// Unless the server has controllers there is no scheduler either: pods are bound to the
// node by Run. With them the API server reaches kubelet and pods: kubectl logs works.
//
// It must not be imported by anything but tests.
package node
