#include "worker/devices/early_join_test.h"

#include <thread>
#include <utility>

#include "worker/devices/device_rates.h"

namespace outboard::worker {

EarlyJoinTest::EarlyJoinTest(std::vector<std::string> command,
                             std::vector<std::vector<int>> cores) {
  // Read here: the caller's thread may set variables while the test runs.
  std::packaged_task<Results()> test([command = std::move(command), cores = std::move(cores),
                                      environment = EnvironmentWith({})] {
    Results results;
    for (const std::vector<int>& each : cores)
      results.push_back(MeasureDevice(command, environment, each, kTestWithin, kTestAlone));
    return results;
  });
  results_ = test.get_future();
  // Not waited for by a worker that is not let in; the measuring process ends with the thread.
  std::thread(std::move(test)).detach();
}

EarlyJoinTest::Results EarlyJoinTest::Take() {
  return results_.valid() ? results_.get() : Results();
}

}  // namespace outboard::worker
