package runner_test

const childEnv = "KERNOSIS_RUNNER_CHILD"

func child() int { return 0 }
