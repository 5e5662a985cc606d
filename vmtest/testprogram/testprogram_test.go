package testprogram_test

import (
	"bufio"
	"os"
	"os/exec"
	"testing"

	"github.com/kernosis/kernosis/vmtest/leakcheck"
	"github.com/kernosis/kernosis/vmtest/testprogram"
)

func TestMain(m *testing.M) { os.Exit(leakcheck.Run(m.Run)) }

func TestMark(t *testing.T) {
	mark := testprogram.NewMark(t)
	if n := mark.Count(); n != 0 {
		t.Fatalf("%d processes before one has started", n)
	}
	cmd := exec.Command(testprogram.Script(t, "echo runs; exec sleep 60\n"))
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
