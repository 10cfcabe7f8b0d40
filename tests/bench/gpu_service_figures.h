// What a session on a GPU pays besides its kernels: a gateway, a worker with OUTBOARD_DEVICE=cuda
// and programs as users start them, all on this machine. Without BEAM.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/bench/gpu_device_figures.h"
#include "tests/bench/tiny_steps.h"

namespace outboard::bench {

struct ServiceTrial {
  // Of gateway and worker, besides those of Cloud.
  std::vector<std::pair<std::string, std::string>> environment = {{"OUTBOARD_DEVICE", "cuda"}};
  int tiny_steps = kTinySteps;
  int repeats = 3;  // of each first step; medians count
  bool mnist = true;
  // Arguments of the program gpt that make its net; it takes one step.
  std::string gpt =
      "--batch 8 --layers 12 --width 768 --heads 12 --context 1024 --vocabulary 50257 --bf16";
};

// cuda_step_extra_us: a step that computes next to nothing, its value read, through gateway and
// worker, less the same in one process; cuda_first_step_s_{mnist,gpt2}_{cold,warm}: from the start
// of a program to the end of its first step, its data in the cloud, with no kernel known, and with
// those of an earlier session on the worker's disk.
// Errors: those of the device in this process. Exits with a message where gateway, worker or a
// program fails.
absl::StatusOr<std::vector<DeviceFigure>> MeasureGpuService(const ServiceTrial& trial);

}  // namespace outboard::bench
