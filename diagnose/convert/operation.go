package convert

import (
	"cmp"
	"strings"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/artifact"
	"github.com/kernosis/kernosis/diagnose/manifest"
)

func (j *job) operation(from *operation) manifest.Object {
	to := &v1alpha1.Operation{TypeMeta: typeMeta(v1alpha1.KindOperation), ObjectMeta: j.metadata(&from.object)}
	processor, ok := j.processor(&from.Spec.Processor)
	if !ok {
		return nil
	}
	to.Spec.Processor = processor
	to.Spec.Dependences = from.Spec.Dependences
	if s := from.Spec.Storage; s != nil && s.HostPath != nil {
		to.Spec.Storage = j.storage(s.HostPath.Path)
	}
	if processor.Builtin == nil {
		j.note("spec", "without an effect it is treated as a repair, which the RemediationPolicy must allow: set effect: Collect or Check if it changes nothing")
	}
	return to
}

// storage converts a folder of results. Without a path it was KubeDiag's data folder, and becomes
// the node's default folder.
func (j *job) storage(path string) *v1alpha1.Storage {
	const field = "spec.storage.hostPath.path"
	path = cmp.Or(path, ".")
	if err := artifact.CheckFolder(path); err != nil {
		j.lost(field, "results are not kept there: %s", err)
		return nil
	}
	if strings.HasPrefix(path, "/") {
		j.note(field, "nodes keep results only below one folder, diagnose/storage in the agent's state-dir: set diagnose-storage-dir to %s, or a folder above it, and mount that into the agent's pod", path)
	}
	return &v1alpha1.Storage{HostPath: &v1alpha1.HostPath{Path: path}}
}

func (j *job) processor(from *processor) (to v1alpha1.Processor, ok bool) {
	to.TimeoutSeconds = deref(from.TimeoutSeconds)
	field := "spec.processor.httpServer"
	if from.HTTPServer == nil && (from.ExternalIP != nil || from.ExternalPort != nil || from.Path != nil || from.Scheme != nil) {
		from.HTTPServer = &httpServer{Address: from.ExternalIP, Port: from.ExternalPort, Path: from.Path, Scheme: from.Scheme}
		field = "spec.processor"
	}
	ways := 0
	for _, given := range []bool{from.HTTPServer != nil, from.ScriptRunner != nil, from.Function != nil} {
		if given {
			ways++
		}
	}
	switch {
	case ways != 1:
		j.lost("spec.processor", "%d processors, want one: the Operation is left out", ways)
		return to, false
	case from.Function != nil:
		j.lost("spec.processor.function", "functions have no counterpart, use a scriptRunner or an httpServer: the Operation is left out")
		return to, false
	case from.ScriptRunner != nil:
		to.ScriptRunner = j.scriptRunner(from.ScriptRunner)
		return to, true
	}
	if name := from.HTTPServer.ofAgent(); name != "" {
		to.Builtin = j.builtin(name, field+".path")
		return to, to.Builtin != nil
	}
	to.HTTPServer = j.httpServer(from.HTTPServer, field)
	return to, to.HTTPServer != nil
}

func (j *job) builtin(name, field string) *v1alpha1.Builtin {
	known, ok := counterparts()[name]
	switch {
	case !ok:
		j.lost(field, "KubeDiag's agent has no known processor %s: the Operation is left out", name)
		return nil
	case known.builtin == "":
		j.lost(field, "%s of KubeDiag's agent has no counterpart, %s: the Operation is left out", name, known.note)
		return nil
	case known.note != "":
		j.note(field, "%s of KubeDiag's agent becomes the built-in %s, whose results have other names; %s", name, known.builtin, known.note)
	default:
		j.note(field, "%s of KubeDiag's agent becomes the built-in %s, whose results have other names", name, known.builtin)
	}
	return &v1alpha1.Builtin{Name: known.builtin}
}

func (j *job) httpServer(from *httpServer, field string) *v1alpha1.HTTPServer {
	to := &v1alpha1.HTTPServer{Address: deref(from.Address), Port: deref(from.Port), Path: deref(from.Path), Scheme: strings.ToLower(deref(from.Scheme))}
	switch {
	case to.Address == "" && (to.Port == 0 || to.Port == agentPort):
		j.lost(field, "KubeDiag's agent serves it at %s, which is not a known processor: the Operation is left out", to.Path)
		return nil
	case to.Address == "":
		j.note(field, "without an address KubeDiag called the node's own; here that is 127.0.0.1, on which the server must listen")
	case to.Port == 0:
		to.Port = agentPort
		j.note(field, "without a port KubeDiag used its agent's, so it is %d", agentPort)
	}
	if to.Scheme == "https" {
		j.note(field, "the server's certificate is verified, unlike with KubeDiag: set caBundle if the nodes don't trust its authority")
	}
	return to
}

func (j *job) scriptRunner(from *scriptRunner) *v1alpha1.ScriptRunner {
	to := &v1alpha1.ScriptRunner{Script: from.Script, OperationResultKey: deref(from.OperationResultKey)}
	names := parameterNames()
	for _, key := range from.ArgKeys {
		const field = "spec.processor.scriptRunner.argKeys"
		ours, known := names[key]
		switch {
		case known:
			if ours != key {
				j.note(field, "%s is called %s here", key, ours)
			}
			key = ours
		case strings.HasPrefix(key, "diagnosis."), strings.HasPrefix(key, "task."):
			j.note(field, "%s is not passed to operations here: the script fails unless it is a parameter", key)
		case strings.HasPrefix(key, "collector."), strings.HasPrefix(key, "diagnoser."), strings.HasPrefix(key, "recover."):
			j.note(field, "%s is a result of KubeDiag's own processors: use a result of the built-in that replaces it", key)
		}
		to.ArgKeys = append(to.ArgKeys, key)
	}
	j.note("spec.processor.scriptRunner", "scripts run only on nodes where that is enabled, and one that fails ends its path, unlike with KubeDiag")
	return to
}
