// Package kubetest runs a real Kubernetes API server, with its etcd, for the
// tests of a package. What depends on how the server behaves is tested against
// the server and not against a fake of it.
//
// The programs are built once from the module in .tools/kubernetes, and kept in
// the user's cache folder ([Programs]). A [Server] has a state folder,
// certificates and a port of its own, so that many run beside each other, as root
// or as an ordinary user. It ends with the process that started it, however that
// one ends.
//
// A test package has one server, and each test a namespace and nodes of its own:
//
//	var cluster kubetest.Shared
//
//	func TestMain(m *testing.M) { os.Exit(cluster.Run(m)) }
//
//	func TestSomething(t *testing.T) {
//		server := cluster.Server(t)
//		node := server.Node(t)
//		…
//	}
//
// Unless [Options.Controllers] asks for them there are no controllers: nothing schedules
// pods, expires nodes, or empties a namespace that is being deleted.
//
// It must not be imported by anything but tests.
package kubetest
