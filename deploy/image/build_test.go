package main

import (
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
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// The parameters of the image under test.
const (
	testVersion  = "v" + testTag
	testTag      = "0.0.0-image.1"
	testRevision = "0123456789abcdef0123456789abcdef01234567"
	testCreated  = 1700000000
)

const moduleRoot = "../.."

var created = time.Unix(testCreated, 0).UTC()

// distFolder returns the folder that make image has written to; it runs once for all tests.
var distFolder = sync.OnceValues(func() (string, error) {
	dir, err := scratch("kernosis-dist-")
	if err != nil {
		return "", err
	}
	return dir, makeTarget(moduleRoot, "image", "DIST="+dir)
})

// rootFolder returns a folder whose subfolder "root" contains the image's files for this machine,
// written by make image-root once for all tests.
var rootFolder = sync.OnceValues(func() (string, error) {
	dir, err := scratch("kernosis-root-")
	if err != nil {
		return "", err
	}
	return dir, makeTarget(moduleRoot, "image-root", "ROOT="+filepath.Join(dir, "root"), "DIST="+filepath.Join(dir, "dist"), "PLATFORMS=linux/"+runtime.GOARCH)
})

// scratch creates a folder for all tests. It is removed when the process has ended, even if that is
// killed.
func scratch(prefix string) (string, error) {
	dir, remove, err := process.TempDir("", prefix)
	if err != nil {
		return "", err
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
	testenv.OnlyInTestAll(t)
	dir, err := make()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// makeTarget runs make as a user would, with the tests' version.
func makeTarget(source, target string, args ...string) error {
	args = append([]string{"-s", target, "VERSION=" + testVersion, "REVISION=" + testRevision, fmt.Sprintf("SOURCE_DATE_EPOCH=%d", testCreated)}, args...)
	cmd := exec.Command("make", args...)
	cmd.Dir = source
	// Variables exported by an outer make must not affect this one.
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

// programFile returns the file name of the program for a platform in dist.
func programFile(arch string) string { return "kernosis-linux-" + arch }
