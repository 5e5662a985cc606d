package e2e_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// pins is the folder where an agent pins its programs.
const pins = "/sys/fs/bpf/kernosis"

// uninstalled checks that nothing of Kernosis is left on the Node or in the namespace, except the
// CRDs and their objects.
func (c *cluster) uninstalled(t *testing.T) {
	own := c.ownTypes(t)
	// Conditions of others must stay.
	kubelets := len(c.conditions(t)) - len(own)
	c.runHelm(t, "uninstall", release, "--wait", "--timeout", "3m")
	for kind := range c.conditions(t) {
		if slices.Contains(own, kind) {
			t.Errorf("condition %s is left", kind)
		}
	}
	if n := len(c.conditions(t)); n != kubelets {
		t.Errorf("%d conditions are left, want %d (not ours)", n, kubelets)
	}
	if l := c.lease(t); l != nil {
		t.Errorf("the Lease is left: %+v", l)
	}
	n, err := c.api.CoreV1().Nodes().Get(t.Context(), c.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, taint := range n.Spec.Taints {
		if strings.Contains(taint.Key, v1alpha1.Group) {
			t.Errorf("taint %v is left", taint)
		}
	}
	c.jobRan(t, "uninstall")
	testenv.UntilShown(t, "end of all pods", time.Minute, func() (bool, string) {
		pods, err := c.api.CoreV1().Pods(system).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return len(pods.Items) == 0, strconv.Itoa(len(pods.Items))
	})
	// The BPF programs must be gone too: an agent that is only replaced leaves them to the next.
	if err := c.In(func() error {
		if _, err := os.Stat(pins); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("programs are left: %s: %w", pins, err)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if _, err := c.api.CoreV1().ConfigMaps(system).Get(t.Context(), "kernosis-trigger-state", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the state of Triggers is left: %v", err)
	}
	var diagnoses v1alpha1.DiagnosisList
	if err := c.kinds.List(t.Context(), &diagnoses); err != nil {
		t.Errorf("the kinds are gone: %v", err)
	}
	if len(diagnoses.Items) == 0 {
		t.Error("the Diagnoses are gone")
	}
}

// reinstalled checks that an installation after an uninstallation works like the first one.
func (c *cluster) reinstalled(t *testing.T) {
	c.install(t, "install", "--set", "uninstall.crds=true")
	c.runs(t)
	c.known(t)
	c.kills(t, "installed-again")
}

// uninstalledWithKinds checks that the chart, if configured to, deletes its CRDs and all Diagnoses.
func (c *cluster) uninstalledWithKinds(t *testing.T) {
	// Helm waits for the Job; the API server may take minutes for a kind (see TestKinds in
	// deploy/install).
	c.runHelm(t, "uninstall", release, "--wait", "--timeout", "6m")
	c.jobRan(t, "crds-delete")
	if left := c.kubectl(t, "get", "crds", "-o", "name"); strings.Contains(left, v1alpha1.Group) {
		t.Errorf("kinds are left: %s", left)
	}
	if left := c.kubectl(t, "get", "all,sa,roles,rolebindings", "-n", system, "-o", "name"); strings.Contains(left, release) {
		t.Errorf("left in the namespace: %s", left)
	}
	if left := c.kubectl(t, "get", "clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings", "-o", "name"); strings.Contains(left, release) {
		t.Errorf("left in the cluster: %s", left)
	}
}
