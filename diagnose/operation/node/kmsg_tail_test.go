package node

import (
	"errors"
	"io/fs"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/vmtest/disklab"
	"github.com/kernosis/kernosis/vmtest/operationtest"
)

func TestKmsgTail(t *testing.T) {
	d := disklab.NewExt4(t, 8<<20) // makes the kernel log a mount
	b := KmsgTail(operationtest.RealHost())
	out, kept, err := operationtest.Perform(t, b, map[string]string{"contains": "EXT4-FS (" + d.Name + ")", "maxAge": "1m"})
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EPERM) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Log(out.Results)
	if r := out.Results; r["matching"] == "0" || !strings.Contains(r["lastLine"], "mounted filesystem") || r["matching"] != r["copied"] || r["lastAge"] == "" {
		t.Errorf("%v", r)
	}
	if text := kept.Files["kmsg.txt"]; !strings.Contains(text, "] info: EXT4-fs ("+d.Name+")") {
		t.Errorf("kmsg.txt: %s", text)
	}

	all, _ := operationtest.Succeed(t, b, map[string]string{"lines": "20000"})
	few, kept := operationtest.Succeed(t, b, map[string]string{"lines": "3"})
	lines := strings.Split(strings.TrimSpace(kept.Files["kmsg.txt"]), "\n")
	if few.Results["copied"] != "3" || len(lines) != 3 || few.Results["note"] == "" || !strings.HasSuffix(lines[2], few.Results["lastLine"]) {
		t.Errorf("%v %q", few.Results, lines)
	}
	if lines[0] >= lines[2] && len(lines[0]) == len(lines[2]) {
		t.Errorf("not in order: %q", lines)
	}
	bad, _ := operationtest.Succeed(t, b, map[string]string{"level": "warning"})
	total, _ := strconv.Atoi(all.Results["matching"])
	if worse, _ := strconv.Atoi(bad.Results["matching"]); worse >= total || strings.Contains(bad.Results["levels"], "info") {
		t.Errorf("%v of %v", bad.Results, all.Results)
	}
	none, _ := operationtest.Succeed(t, b, map[string]string{"contains": "no kernel writes this \\o/"})
	if none.Results["matching"] != "0" || none.Results["lastLine"] != "" {
		t.Errorf("%v", none.Results)
	}
}
