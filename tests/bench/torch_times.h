// PyTorch's times on the GPU: torch_gpu.py, run beside ours.
#pragma once

#include <map>
#include <string>

namespace outboard::bench {

struct TorchTimes {
  std::map<std::string, double> seconds;  // by name
  int status = 0;                         // of torch_gpu.py
  int seconds_over = 0;                   // the time that it had, where that was not enough

  // Why there is no time of this name: no PyTorch, no time left, an error, or none such.
  std::string WhyNot(const std::string& name) const;
};

// Of a part of torch_gpu.py, which gets at most so many seconds; what it has printed by then
// counts.
TorchTimes TorchTimesOf(const std::string& part, int seconds_max);

}  // namespace outboard::bench
