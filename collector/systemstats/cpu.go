package systemstats

import (
	"cmp"
	"math"
	"strconv"

	"github.com/prometheus/procfs"
)

// userHZ is the kernel's tick in /proc: 100 on every architecture that Go supports.
const userHZ = 100

// load reads /proc/loadavg.
func (c *Collector) load(s *sample) error {
	avg, err := c.fs.LoadAvg()
	if err != nil {
		return err
	}
	s.add("cpu/runnable_task_count", avg.Load1)
	s.add("cpu/load_1m", avg.Load1)
	s.add("cpu/load_5m", avg.Load5)
	s.add("cpu/load_15m", avg.Load15)
	return nil
}

// cpu reads /proc/stat.
func (c *Collector) cpu(s *sample) error {
	stat, err := c.fs.Stat()
	if err != nil {
		return err
	}
	s.count("system/processes_total", stat.ProcessCreated)
	s.count("system/procs_running", stat.ProcessesRunning)
	s.count("system/procs_blocked", stat.ProcessesBlocked)
	s.count("system/interrupts_total", stat.IRQTotal)
	for _, st := range stages(stat.CPUTotal) {
		// Restore whole ticks: the library has divided them.
		s.add("cpu/usage_time", math.Round(st.seconds*userHZ), st.state)
	}
	for n, cpu := range stat.CPU {
		name := "cpu" + strconv.FormatInt(n, 10)
		for _, st := range stages(cpu) {
			s.add("system/cpu_stat", st.seconds, name, cmp.Or(st.stage, st.state))
		}
	}
	return nil
}

// stage is a use of CPU time.
type stage struct {
	state   string // in cpu/usage_time
	stage   string // in system/cpu_stat; empty: the same
	seconds float64
}

func stages(c procfs.CPUStat) []stage {
	return []stage{
		{"user", "", c.User},
		{"nice", "", c.Nice},
		{"system", "", c.System},
		{"idle", "", c.Idle},
		{"iowait", "", c.Iowait},
		{"irq", "iRQ", c.IRQ},
		{"softirq", "softIRQ", c.SoftIRQ},
		{"steal", "", c.Steal},
		{"guest", "", c.Guest},
		{"guest_nice", "guestNice", c.GuestNice},
	}
}
