package node

// PauseImage exists on every node.
const PauseImage = pauseImage

// Dir returns the state folder.
func (n *Node) Dir() string { return n.dir }

// Groups returns the cgroups.
func (n *Node) Groups() []string { return n.groups.all }

// Inside returns the PIDs in the node's cgroup.
func (n *Node) Inside() []int {
	all, _ := n.groups.processes(n.groups.name)
	return all
}
