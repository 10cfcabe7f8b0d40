// A user's program that trains, on as many devices as it is told (tests/e2e/small_trainer).
#pragma once

#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/cluster.h"
#include "tests/support/paths.h"

namespace outboard::test {

// `devices`: of CLOUD_DEVICES; "": it is not set.
inline std::unique_ptr<Process> StartTraining(Cluster& cluster, const std::string& devices,
                                              const char* steps) {
  std::vector<std::string> environment = {"CLOUD=1", "CLOUD_HOST=" + cluster.target(),
                                          "CLOUD_KEY=" + cluster.key()};
  if (!devices.empty()) environment.push_back("CLOUD_DEVICES=" + devices);
  return std::make_unique<Process>(std::vector<std::string>{test::kSmallTrainerProgram, steps},
                                   std::move(environment));
}

// That it has printed.
inline std::vector<double> LossesOf(const std::string& out) {
  std::vector<double> losses;
  std::istringstream lines(out);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("step ")) losses.push_back(std::stod(line.substr(line.find(": ") + 2)));
  return losses;
}

}  // namespace outboard::test
