package collector

import (
	"strings"
	"testing"

	"github.com/kernosis/kernosis/bpf"
	"github.com/kernosis/kernosis/collector/hostfs"
)

// A name that fills its field may be longer: the cgroup's id leads to the whole one.
func TestChainWithACutName(t *testing.T) {
	id := strings.Repeat("0123456789abcdef", 4)
	path := "/kubepods-burstable-pod0f6d5b2e_7c1a_4e0b_9a53_2f1c8e4d7b60.slice:cri-containerd:" + id
	a := attribution{attributor: hostfs.NewAttributor(1, func(uint64) (string, error) { return path, nil }, nil)}
	c := bpf.Chain{Depth: 1, ID: [6]uint64{7}}
	copy(c.Name[0][:len(c.Name[0])-1], path[1:])
	if got := a.chain(&c, 0); got.Container == nil || got.Container.ID != id || got.Cgroup.Path != path {
		t.Errorf("%+v of %+v", got.Container, got.Cgroup)
	}
}
