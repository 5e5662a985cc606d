package node_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/kubetest/node"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// childEnv makes the test binary start a node with a pod, report it, wait for a line, and exit
// without closing the node.
const childEnv = "NODETEST_CHILD"

// said is the report of a child process.
type said struct {
	Dir    string
	Groups []string
	Inside []int // processes in the node's cgroup
}

func child() {
	if err := startAndWait(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func startAndWait() error {
	ctx := context.Background()
	server, err := kubetest.Start(ctx, kubetest.Options{})
	if err != nil {
		return err
	}
	n, err := node.Start(ctx, server, nil)
	if err != nil {
		return err
	}
	accounts := server.Client().CoreV1().ServiceAccounts("default")
	if _, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	pods := server.Client().CoreV1().Pods("default")
	if _, err := pods.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "idle"}, Spec: corev1.PodSpec{
		NodeName: n.Name, AutomountServiceAccountToken: new(bool),
		Containers: []corev1.Container{{Name: "main", Image: node.PauseImage}},
	}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	for {
		pod, err := pods.Get(ctx, "idle", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if node.Ready(pod) {
			break
		}
		time.Sleep(50 * time.Millisecond) // polling interval; the test has the deadline
	}
	reported := said{Dir: n.Dir(), Groups: n.Groups(), Inside: n.Inside()}
	if err := json.NewEncoder(os.Stdout).Encode(reported); err != nil {
		return err
	}
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	return nil
}

// After the process that started the node is killed, the machine outside of the node is as before.
func TestNothingStaysWhenTheProcessIsKilled(t *testing.T) {
	testenv.OnlyInTestAll(t)
	machine.Node(t) // so that the programs are built and the kernel's modules loaded
	before := outside(t, "")
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(cmd.Environ(), childEnv+"=1")
	cmd.Stderr, cmd.WaitDelay = t.Output(), time.Second
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	late := time.AfterFunc(testenv.Within(5*time.Minute), func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	var reported said
	if err := json.NewDecoder(stdout).Decode(&reported); err != nil {
		t.Fatal(err)
	}
	// containerd, kubelet, a shim, the two processes of a pod.
	if len(reported.Inside) < 5 {
		t.Errorf("processes in the node's cgroup: %v", reported.Inside)
	}
	if now := outside(t, reported.Dir); now != before {
		t.Errorf("a node changes the machine:\n%s\nbefore:\n%s", now, before)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	testenv.UntilShown(t, "nothing is left", 20*time.Second, func() (bool, string) {
		left := slices.DeleteFunc(append([]string{reported.Dir}, reported.Groups...), func(dir string) bool {
			_, err := os.Stat(dir)
			return os.IsNotExist(err)
		})
		return len(left) == 0, fmt.Sprint(left)
	})
	for _, pid := range reported.Inside {
		// An ended process stays as a zombie until it is reaped.
		if s, err := hostfs.New("/").Stat(pid); err == nil && s.State != 'Z' && s.State != 'X' {
			t.Errorf("process %d is left", pid)
		}
	}
	if now := outside(t, reported.Dir); now != before {
		t.Errorf("the machine has changed:\n%s\nbefore:\n%s", now, before)
	}
}

// outside returns the state of the machine that a node with this directory could change.
func outside(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	for _, name := range []string{
		"/proc/sys/vm/overcommit_memory", "/proc/sys/vm/panic_on_oom", "/proc/sys/kernel/panic", "/proc/sys/kernel/panic_on_oops",
		"/proc/sys/kernel/keys/root_maxkeys", "/proc/sys/kernel/keys/root_maxbytes", "/proc/sys/net/ipv4/ip_forward",
		"/proc/net/route",
	} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s: %s", name, text)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		// Other packages mount in their tests' temporary directories at the same time.
		at := strings.Fields(line)[4]
		if !strings.HasPrefix(at, os.TempDir()+"/") || dir != "" && strings.HasPrefix(at+"/", dir+"/") {
			b.WriteString(line)
		}
	}
	links, err := filepath.Glob("/sys/class/net/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"/var/lib/kubelet", "/var/log/pods", "/var/log/containers", "/var/lib/cni", "/run/containerd", "/run/netns"} {
		if _, err := os.Stat(name); err == nil {
			links = append(links, name)
		}
	}
	fmt.Fprintln(&b, links)
	return b.String()
}
