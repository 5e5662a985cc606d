package kubetest

// Dir returns the state folder.
func (s *Server) Dir() string { return s.dir }

// Processes returns the numbers of etcd's process and of the API server's.
func (s *Server) Processes() []int {
	return []int{s.etcd.PID(), s.api.PID()}
}
