package pods

import (
	"io"
	"strings"
	"testing"
)

// spaces is an endless reader.
type spaces struct{}

func (spaces) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

func TestAnAnswerIsReadUpToABound(t *testing.T) {
	_, _, _, err := decode(io.MultiReader(strings.NewReader(`{"kind":"PodList",`), spaces{}), 1<<20)
	if err == nil || !strings.Contains(err.Error(), "more than 1048576 bytes") {
		t.Error(err)
	}
}

func TestAnswersThatAreNone(t *testing.T) {
	for text, want := range map[string]string{
		``:                                       "unexpected EOF",
		`[]`:                                     "want {",
		`{}`:                                     `not a PodList (kind "")`,
		`{"kind":"Status\u001b","items":[]}`:     `not a PodList (kind "Status\\x1b")`,
		`{"kind":"PodList"}`:                     "not a PodList",
		`{"kind":"PodList","items":{}}`:          "items: want a list",
		`{"kind":"PodList","items":[1]}`:         "items: [0]: ",
		`{"kind":"PodList","items":[{}`:          "unexpected EOF",
		`{"kind":"PodList","items":[],"other":1`: "unexpected EOF",
	} {
		if pods, _, _, err := decode(strings.NewReader(text), maxAnswer); err == nil || !strings.Contains(err.Error(), want) || pods != nil {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	for _, text := range []string{
		`{"kind":"PodList","apiVersion":"v1","metadata":{"a":[1]},"items":null}`,
		`{"items":[],"kind":"PodList"}`,
	} {
		if pods, _, _, err := decode(strings.NewReader(text), maxAnswer); err != nil || len(pods) != 0 {
			t.Errorf("%s: %v", text, err)
		}
	}
	// Two pods with one UID count as one; a pod without a UID is a fault.
	pods, faults, _, err := decode(strings.NewReader(`{"kind":"PodList","items":[
		{"metadata":{"name":"a","namespace":"n","uid":"u"}},{"metadata":{"name":"b","namespace":"n","uid":"u"}},{"metadata":{"name":"c","namespace":"n"}}]}`), maxAnswer)
	if err != nil || len(pods) != 1 || pods[0].Name != "a" || len(faults) != 1 || !strings.Contains(faults["n/c/"], "metadata.uid") {
		t.Errorf("%v, %v, %v", pods, faults, err)
	}
}

// A CPU limit may be a container's or its whole pod's.
func TestCPULimitsInAList(t *testing.T) {
	for name, c := range map[string]struct {
		pod, container string
		want           int64
	}{
		"none":       {`{}`, `{}`, 0},
		"its own":    {`{}`, `{"limits":{"cpu":"200m"}}`, 200},
		"its pod's":  {`{"limits":{"cpu":"500m"}}`, `{}`, 500},
		"both":       {`{"limits":{"cpu":"500m"}}`, `{"limits":{"cpu":"200m"}}`, 200},
		"no request": {`{"requests":{"cpu":"500m"}}`, `{}`, 0},
	} {
		pods, faults, _, err := decode(strings.NewReader(`{"kind":"PodList","items":[{"metadata":{"name":"p","namespace":"n","uid":"u"},
			"spec":{"resources":`+c.pod+`,"containers":[{"name":"main","livenessProbe":{"tcpSocket":{"port":1}},"resources":`+c.container+`}]}}]}`), maxAnswer)
		if err != nil || len(faults) > 0 || len(pods) != 1 || len(pods[0].Containers) != 1 || pods[0].Containers[0].CPULimit != c.want {
			t.Errorf("%s: %+v, %v, %v; want a limit of %d", name, pods, faults, err, c.want)
		}
	}
}

// If two pods claim the UID of a static pod, kubelet's wins wherever it is in the list.
func TestForgedMirrorsInAList(t *testing.T) {
	const hash = "b1946ac92492d2347c6235b4d2611184"
	mirror := func(name, created string) string {
		return `{"metadata":{"name":"` + name + `","namespace":"n","uid":"` + name + `","creationTimestamp":"` + created + `",
			"annotations":{"kubernetes.io/config.mirror":"` + hash + `"},"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"n1","uid":"x"}]}}`
	}
	static := `{"metadata":{"name":"static","namespace":"n","uid":"` + hash + `"}}`
	forged, older := mirror("forged", "2026-01-02T00:00:00Z"), mirror("older", "2026-01-01T00:00:00Z")
	for _, c := range []struct{ items, want string }{
		{forged + "," + older, "older"}, {older + "," + forged, "older"}, {forged + "," + static, "static"}, {static + "," + forged, "static"},
		{forged + "," + older + "," + static, "static"},
	} {
		pods, _, _, err := decode(strings.NewReader(`{"kind":"PodList","items":[`+c.items+`]}`), maxAnswer)
		if err != nil || len(pods) != 1 || pods[0].Name != c.want || pods[0].UID != hash {
			t.Errorf("%v, %v, want %s", pods, err, c.want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(`{"kind":"PodList","items":[{"metadata":{"name":"a","namespace":"n","uid":"u"},"spec":{"containers":[{"name":"c","livenessProbe":{"tcpSocket":{"port":80}}}]}}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		pods, _, _, err := decode(strings.NewReader(text), maxAnswer)
		if err != nil && pods != nil {
			t.Error("pods with an error")
		}
		for _, p := range pods {
			if p.UID == "" || p.Namespace == "" || p.Name == "" {
				t.Errorf("%+v", p)
			}
		}
	})
}
