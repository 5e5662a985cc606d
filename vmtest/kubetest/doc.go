// Package kubetest runs a real Kubernetes API server, with its etcd, for the tests of a package, so
// that these don't depend on the behaviour of a fake.
//
// The programs are built once from the module in .tools/kubernetes and kept in the user's cache
// folder ([Programs]). A [Server] has its own state folder, certificates and port, so that many can
// run at the same time, as root or as an ordinary user. It ends with the process that started it,
// even if that is killed.
//
// A test package has one server, and each test has its own namespace and nodes:
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
// Without [Options.Controllers] there are no controllers: nothing schedules pods, expires nodes, or
// empties a namespace that is being deleted.
//
// Only tests may import it.
package kubetest
