package kubetest

// Dir returns the state folder.
func (s *Server) Dir() string { return s.dir }
