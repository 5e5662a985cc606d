package e2e_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/vmtest/testenv"
)

// upgraded upgrades to another image and another setting. Agents are replaced without being
// considered silent, continue from their state, and a Job updates the CRDs.
func (c *cluster) upgraded(t *testing.T) {
	c.neverUnknown(t)
	k := c.kills(t, "upgraded")
	before := c.lease(t)
	c.install(t, "upgrade", "--set", "image.tag="+tagTwo, "--set", "agent.config.log-level=debug")
	for _, component := range []string{"agent", "controller"} {
		testenv.UntilShown(t, "pods of the new image alone", time.Minute, func() (bool, string) {
			var images []string
			ok := true
			for _, p := range c.of(t, component) {
				image := p.Spec.Containers[0].Image
				ok = ok && strings.HasSuffix(image, ":"+tagTwo)
				images = append(images, image)
			}
			return ok, strings.Join(images, " ")
		})
	}
	c.runs(t)
	k.one(t)
	k.reported(t) // in the same series: the new agent knows what was reported
	if events := c.series(t, k); events != 1 {
		t.Errorf("the kills before and after are %d Events", events)
	}
	testenv.UntilShown(t, "Lease that is no longer draining", 30*time.Second, func() (bool, string) {
		now := c.lease(t)
		if now == nil || now.UID != before.UID {
			t.Fatalf("the Lease was replaced: %+v", now)
		}
		return now.Annotations["kernosis.io/draining"] == "", fmt.Sprint(now.Annotations)
	})
	c.jobRan(t, "crds")
}

// series returns the number of Events that report the kills.
func (c *cluster) series(t testing.TB, k *kills) (n int) {
	t.Helper()
	for _, e := range c.Events(t, k.pod) {
		if e.Source.Component == "kernosis" && e.Reason == "OOMKilling" {
			n++
		}
	}
	return n
}

// jobRan waits for the Event that a hook's Job has completed, as Helm then deletes the Job.
func (c *cluster) jobRan(t testing.TB, what string) {
	t.Helper()
	testenv.UntilShown(t, "Job of "+what, 30*time.Second, func() (bool, string) {
		list, err := c.api.CoreV1().Events(system).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.kind=Job"})
		if err != nil {
			t.Fatal(err)
		}
		var said []string
		for _, e := range list.Items {
			said = append(said, fmt.Sprintf("%s %s: %s", e.InvolvedObject.Name, e.Reason, e.Message))
			if e.Reason == "Completed" && strings.Contains(e.InvolvedObject.Name, what) {
				return true, ""
			}
		}
		return false, strings.Join(said, "\n")
	})
}

// degraded checks that an agent without all it needs does the rest and reports what is missing.
func (c *cluster) degraded(t *testing.T) {
	c.install(t, "upgrade", "--set", "agent.hostRoot=parts", "--set-json", `agent.hostPaths=["/sys"]`)
	c.runs(t)
	is := c.condition(t, "KernosisDegraded", corev1.ConditionTrue, time.Minute)
	if is.Reason != "MissingHostPath" || !strings.Contains(is.Message, "/host/proc") {
		t.Errorf("%s: %s", is.Reason, is.Message)
	}
	if n := c.metrics(t).Sum("kernosis_degraded", "reason", is.Reason); n == 0 {
		t.Error("no metric says so")
	}
	c.install(t, "upgrade")
	c.runs(t)
	c.condition(t, "KernosisDegraded", corev1.ConditionFalse, time.Minute)
}
