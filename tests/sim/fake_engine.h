// An engine without arithmetic: a result is a hash of the graph, its index and the inputs' bytes,
// so that a Run that is dropped, applied twice or given other inputs changes everything computed
// later. Donated inputs are overwritten at once, as real results may do. Each rank of a session on
// several devices has other results; a group that has ended has none.
#pragma once

#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "tests/support/device.h"
#include "worker/engine/engine.h"

namespace outboard::sim {

// FNV-1a, over eight bytes at a time: some values are as long as a message may be. The shift brings
// high bits down, which a product moves up only.
inline uint64_t HashOf(std::string_view bytes, uint64_t hash = 0xcbf29ce484222325) {
  constexpr uint64_t kPrime = 0x100000001b3;
  for (; bytes.size() >= 8; bytes.remove_prefix(8)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data(), 8);
    hash = (hash ^ word) * kPrime;
    hash ^= hash >> 32;
  }
  for (const unsigned char byte : bytes) hash = (hash ^ byte) * kPrime;
  return hash;
}

// Values are 8 bytes, f32[2].
inline std::string ValueOf(std::string_view graph_id, uint32_t index,
                           const std::vector<std::string_view>& inputs, uint32_t rank = 0) {
  uint64_t hash = HashOf(graph_id) + index + 1000 * rank;
  for (const std::string_view input : inputs) hash = HashOf(input, hash);
  return std::string(reinterpret_cast<const char*>(&hash), sizeof(hash));
}

class FakeEngine final : public worker::Engine {
 public:
  FakeEngine()
      : Engine(ValueOrDie(
            runtime::MakeDevice(runtime::kCpu, {.threads = 1, .memory_bytes_max = 1 << 28}))) {}

  uint32_t rank = 0;
  std::function<void(const std::string& value)> on_result;

  absl::StatusOr<std::vector<worker::DeviceArrayPtr>> Run(
      const GraphId& id, const UOp* sink, std::vector<worker::DeviceArrayPtr> inputs,
      std::span<const Binding>, std::span<const int64_t> donated) override {
    if (group() != nullptr) {
      const absl::Status status = group()->status();
      if (!status.ok()) return status;
    }
    std::vector<std::string> held;
    for (const worker::DeviceArrayPtr& input : inputs) held.push_back(test::BytesOf(*input));
    const std::vector<std::string_view> bytes(held.begin(), held.end());
    std::vector<worker::DeviceArrayPtr> results;
    for (uint32_t i = 0; i < sink->src.size(); ++i) {
      const std::string value = ValueOf(id.ToBytes(), i, bytes, rank);
      if (on_result) on_result(value);
      absl::StatusOr<std::shared_ptr<worker::DeviceArray>> result = NewArray(DType::kF32, {2});
      if (!result.ok()) return result.status();
      test::SetBytes(**result, value);
      results.push_back(*std::move(result));
    }
    for (const int64_t i : donated)
      if (inputs[i].use_count() == 1) test::Spoil(*inputs[i]);
    return results;
  }
  std::string kind() const override { return "fake"; }
};

}  // namespace outboard::sim
