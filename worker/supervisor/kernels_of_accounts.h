// What a supervisor tells the kernels that it keeps for each account (worker/kernels).
#pragma once

#include <string>

#include "base/cores.h"
#include "runtime/devices.h"
#include "worker/devices/device_info.h"
#include "worker/kernels/account_kernels.h"
#include "worker/supervisor/core_sets.h"
#include "worker/supervisor/supervisor.h"

namespace outboard::worker {

inline AccountKernelsOptions KernelsOf(const SupervisorOptions& options) {
  AccountKernelsOptions kernels = AccountKernelsFromEnvironment();
  kernels.fleet_secret = options.fleet_secret;
  kernels.one_user = options.one_user;
  if (!options.one_user)  // the search in idle time is the first device's
    kernels.hardware =
        DescribeDevice(std::string(runtime::kCpu),
                       static_cast<int>(DivideCores(UsableCores(), options.devices)[0].size()))
            .hardware_class;
  return kernels;
}

}  // namespace outboard::worker
