// Package testenv is what tests use of the machine that they run on and share: time, as the machine
// is fast or slow at the moment, the kernel, programs, folders, logs, which tests there is time for,
// and the check that nothing is left behind.
//
//	func TestMain(m *testing.M) { os.Exit(testenv.CheckLeaks(m.Run)) }
//
//	testenv.Until(t, "the pod is ready", 20*time.Second, ready)
//	case <-time.After(testenv.Within(20 * time.Second)):
//	path := testenv.BuildProgram(t, "github.com/kernosis/kernosis/cmd/kernosis")
//
// It imports nothing of this module, so that the tests of every package can import it. The product
// does not import it.
package testenv
