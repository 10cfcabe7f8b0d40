// Compares the PTX machine of the tests (tests/gpu) with the CUDA device that is there: every
// instruction that the machine knows, with drawn inputs (tests/gpu/checks/instruction_forms.h), and
// products by warpgroups (tests/compiler/hopper_run.h) for what needs tensor maps and clusters.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/device.h"
#include "tests/compiler/hopper_run.h"
#include "tests/gpu/checks/instruction_forms.h"

namespace outboard::bench {

struct Conformance {
  int compared = 0;
  std::vector<std::string> differences;  // one for each that differs, or that one of both refuses
  double ratio() const {
    return compared == 0 ? 0 : 1 - static_cast<double>(differences.size()) / compared;
  }
};

// The bits that PTX defines of each form's results, on both.
// Errors: those of the device that no kernel caused
absl::StatusOr<Conformance> CompareForms(runtime::Device& device,
                                         const std::vector<ptx::InstructionForm>& forms,
                                         uint64_t seed);

// All bits of the results of each product, on both. The device is of sm_90.
absl::StatusOr<Conformance> CompareProducts(runtime::Device& device,
                                            const std::vector<test::HopperCase>& cases);

}  // namespace outboard::bench
