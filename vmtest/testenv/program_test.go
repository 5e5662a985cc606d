package testenv_test

import (
	"bufio"
	"os/exec"
	"testing"

	"github.com/kernosis/kernosis/vmtest/testenv"
)

func TestMarkProcesses(t *testing.T) {
	mark := testenv.MarkProcesses(t)
	if n := mark.Count(); n != 0 {
		t.Fatalf("%d processes before one has started", n)
	}
	cmd := exec.Command(testenv.Script(t, "echo runs; exec sleep 60\n"))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "runs\n" {
		t.Fatalf("%q, %v", line, err)
	}
	if n := mark.Count(); n != 1 {
		t.Errorf("%d processes, want 1", n)
	}
	mark.Kill()
	if err := cmd.Wait(); err == nil {
		t.Error("it was not killed")
	}
	if n := mark.Count(); n != 0 {
		t.Errorf("%d processes after the kill", n)
	}
}
