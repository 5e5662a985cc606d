package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kernosis/kernosis/vmtest/kubetest/process"
	"github.com/kernosis/kernosis/vmtest/testall"
)

// What the image of these tests is made with.
const (
	testVersion  = "v" + testTag
	testTag      = "0.0.0-image.1"
	testRevision = "0123456789abcdef0123456789abcdef01234567"
	testCreated  = 1700000000
)

const moduleRoot = "../.."

var created = time.Unix(testCreated, 0).UTC()

// distFolder is the folder that make image has written to, once for all tests.
var distFolder = sync.OnceValues(func() (string, error) {
	dir, err := scratch("kernosis-dist-")
	if err != nil {
		return "", err
	}
	return dir, makeTarget(moduleRoot, "image", "DIST="+dir)
})

// rootFolder has the files of the image for this machine in its folder "root", as make
// image-root has written them, once for all tests.
var rootFolder = sync.OnceValues(func() (string, error) {
	dir, err := scratch("kernosis-root-")
	if err != nil {
		return "", err
	}
	return dir, makeTarget(moduleRoot, "image-root", "ROOT="+filepath.Join(dir, "root"), "DIST="+filepath.Join(dir, "dist"), "PLATFORMS=linux/"+runtime.GOARCH)
})

// scratch makes a folder for all tests. It goes with the process, however that ends.
func scratch(prefix string) (string, error) {
	dir, err := os.MkdirTemp("", prefix)
	if err != nil {
		return "", err
	}
	remove, err := process.RemoveAfter(dir)
	if err != nil {
		return "", errors.Join(err, os.Remove(dir))
	}
	cleanUp = append(cleanUp, remove)
	return dir, nil
}

var cleanUp []func() error

func TestMain(m *testing.M) {
	code := m.Run()
	for _, clean := range cleanUp {
		if err := clean(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// image returns the folder that make image has written to.
func image(t *testing.T) string { return once(t, distFolder) }

// imageRoot returns the folder with the image's files in "root".
func imageRoot(t *testing.T) string { return once(t, rootFolder) }

func once(t *testing.T, make func() (string, error)) string {
	t.Helper()
	testall.Only(t)
	dir, err := make()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// makeTarget runs make as a person would, with the tests' version.
func makeTarget(source, target string, args ...string) error {
	args = append([]string{"-s", target, "VERSION=" + testVersion, "REVISION=" + testRevision, fmt.Sprintf("SOURCE_DATE_EPOCH=%d", testCreated)}, args...)
	cmd := exec.Command("make", args...)
	cmd.Dir = source
	// What a make around this one has exported is not for this one.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "MAKE") || strings.HasPrefix(v, "MFLAGS=")
	})
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("make %s: %w\n%s", target, err, out)
	}
	return nil
}

func read(t *testing.T, path ...string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// programFile is the name of the program for a platform in dist.
func programFile(arch string) string { return "kernosis-linux-" + arch }
