// An engine without arithmetic: a result is a hash of the graph, its index and the inputs' bytes,
// so that a Run that is dropped, applied twice or given other inputs changes everything computed
// later. Donated inputs are overwritten at once, as real results may do. Each rank of a session on
// several devices has other results; a group that has ended has none.
#pragma once

#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "tests/support/device.h"
#include "worker/engine/engine.h"

namespace outboard::sim {

// FNV-1a, over eight bytes at a time, and where there are many, over four times as many, which do
// not wait for each other: some values are as long as a message may be. The shift brings high bits
// down, which a product moves up only.
inline uint64_t HashOf(std::string_view bytes, uint64_t hash = 0xcbf29ce484222325) {
  constexpr uint64_t kPrime = 0x100000001b3;
  const auto add = [](uint64_t& to, uint64_t word) {
    to = (to ^ word) * kPrime;
    to ^= to >> 32;
  };
  const auto word_at = [&](size_t i) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + 8 * i, 8);
    return word;
  };
  if (bytes.size() >= 128) {
    uint64_t a = hash, b = hash + 1, c = hash + 2, d = hash + 3;
    for (; bytes.size() >= 32; bytes.remove_prefix(32)) {
      add(a, word_at(0));
      add(b, word_at(1));
      add(c, word_at(2));
      add(d, word_at(3));
    }
    for (const uint64_t lane : {a, b, c, d}) add(hash, lane);
  }
  for (; bytes.size() >= 8; bytes.remove_prefix(8)) add(hash, word_at(0));
  for (const unsigned char byte : bytes) hash = (hash ^ byte) * kPrime;
  return hash;
}

// Where it lies.
inline uint64_t HashOf(const worker::DeviceArray& array) {
  const int64_t bytes = array.bytes();
  uint64_t hash = HashOf("");
  OB_CHECK_OK(array.device().Download(array.address(), bytes, bytes, [&](std::string_view whole) {
    hash = HashOf(whole);
    return absl::OkStatus();
  }));
  return hash;
}

// Of inputs with these hashes. Values are 8 bytes, f32[2].
inline std::string ValueOf(std::string_view graph_id, uint32_t index,
                           std::span<const uint64_t> inputs, uint32_t rank = 0) {
  uint64_t hash = HashOf(graph_id) + index + 1000 * rank;
  for (const uint64_t input : inputs)
    hash = HashOf({reinterpret_cast<const char*>(&input), sizeof(input)}, hash);
  return std::string(reinterpret_cast<const char*>(&hash), sizeof(hash));
}

class FakeEngine final : public worker::Engine {
 public:
  FakeEngine()
      : Engine(ValueOrDie(
            runtime::MakeDevice(runtime::kCpu, {.threads = 1, .memory_bytes_max = 1 << 28}))) {}

  uint32_t rank = 0;
  std::function<void(const std::string& value)> on_result;

  absl::StatusOr<std::vector<worker::DeviceArrayPtr>> Execute(
      const GraphId& id, const UOp* sink, std::vector<worker::DeviceArrayPtr> inputs,
      std::span<const Binding>, std::span<const int64_t> donated) override {
    if (group() != nullptr) {
      const absl::Status status = group()->status();
      if (!status.ok()) return status;
    }
    const std::string graph = id.ToBytes();
    std::vector<uint64_t> hashes;
    for (const worker::DeviceArrayPtr& input : inputs) hashes.push_back(HashOf(*input));
    std::vector<worker::DeviceArrayPtr> results;
    for (uint32_t i = 0; i < sink->src.size(); ++i) {
      const std::string value = ValueOf(graph, i, hashes, rank);
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
