// Package node runs a real node for the tests of a package, with kubetest's API server: kubelet,
// containerd, runc and a network for pods. It is for tests that depend on how kubelet runs and
// probes pods.
//
// kubelet is built like the API server; containerd, runc and the network plugins are the installed
// ones. The node has its own network namespace, mount namespace and cgroup, and writes only to one
// state folder: it changes nothing on the machine. Processes are in the machine's PID namespace, so
// that the kernel reports the same PIDs to everybody. The node ends with the process that started
// it, even if that is killed.
//
//	var machine node.Shared
//
//	func TestMain(m *testing.M) { os.Exit(machine.Run(m)) }
//
//	func TestSomething(t *testing.T) {
//		n := machine.Node(t) // started by the first test that asks
//		n.Image(t, "local.test/app:1", testenv.BuildProgram(t, "github.com/…/app"))
//		pod := n.Run(t, &corev1.Pod{…})
//		…
//	}
//
// The API server can be reached at its outside address and at that of the service "kubernetes".
// There is no DNS, and no other service works. Unless the server has controllers there is no
// scheduler either: Run binds pods to the node. With controllers, the API server can reach kubelet
// and pods: kubectl logs works.
//
// Only tests may import it.
package node
