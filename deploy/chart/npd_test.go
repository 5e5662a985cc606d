package chart_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// With node-problem-detector's own configuration files and the arguments of the rendered pod, the
// agent has their conditions under their names.
func TestNodeProblemDetectorsFiles(t *testing.T) {
	pod := podsOf(t, rendered(t, profiles(t)["npd"]))["kernosis-agent"]
	agent := pod.Spec.Containers[0]
	checkMounted(t, &pod.Spec, "node-problem-detector-config")
	if !hasPort(agent.Ports, "status", 20256) {
		t.Errorf("ports: %+v", agent.Ports)
	}
	port := kubetest.FreePort(t)
	dir := t.TempDir()
	args := []string{"agent", "--state-dir=" + dir, "--pin-root=", "--enable-k8s-exporter=false", "--diagnose=false", "--report-socket=", "--prometheus-port=0", "--port=" + strconv.Itoa(port)}
	for _, a := range agent.Args {
		if strings.HasPrefix(a, "--config.") {
			args = append(args, strings.ReplaceAll(a, "/config/", "../../detector/npd/testdata/config/"))
		}
	}
	if len(args) != 9 {
		t.Fatalf("arguments: %q", args)
	}
	start(t, kernosis(t, args...))
	testenv.Until(t, "a condition of its files", time.Minute, func() bool {
		// From docker-monitor.json: no shipped rule defines it.
		return conditionAt(t.Context(), port, "CorruptDockerOverlay2") != ""
	})
}

// The files are also mounted if only other settings, such as extraArgs, name them.
func TestNodeProblemDetectorsFilesAlone(t *testing.T) {
	pod := podsOf(t, rendered(t, parse(t, "npd: {existingConfigMap: mine}")))["kernosis-agent"]
	checkMounted(t, &pod.Spec, "mine")
}

// checkMounted checks that the agent has the files of a ConfigMap, which it may execute.
func checkMounted(t *testing.T, pod *corev1.PodSpec, configMap string) {
	t.Helper()
	mounted := false
	for _, m := range pod.Containers[0].VolumeMounts {
		mounted = mounted || m.Name == "npd" && m.MountPath == "/config" && m.ReadOnly
	}
	for _, v := range pod.Volumes {
		if v.Name == "npd" && (v.ConfigMap == nil || v.ConfigMap.Name != configMap || *v.ConfigMap.DefaultMode&0o111 != 0o111) {
			t.Errorf("the ConfigMap is mounted as %+v", v.ConfigMap)
		}
	}
	if !mounted {
		t.Error("its files are not mounted")
	}
}

func hasPort(ports []corev1.ContainerPort, name string, number int32) bool {
	for _, p := range ports {
		if p.Name == name && p.ContainerPort == number {
			return true
		}
	}
	return false
}
