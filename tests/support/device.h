// The device that tests run on: the one named by OUTBOARD_DEVICE, by default the CPU. Arrays are
// read and written through it, because the host may be unable to address them.
#pragma once

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "runtime/devices.h"
#include "worker/engine/device_target.h"
#include "worker/engine/engine.h"

namespace outboard::test {

inline std::string DeviceKind() {
  const char* const kind = std::getenv("OUTBOARD_DEVICE");
  return kind != nullptr && *kind != 0 ? kind : std::string(runtime::kCpu);
}

inline std::unique_ptr<runtime::Device> MakeDevice(int64_t memory_bytes_max = 0, int threads = 0) {
  return ValueOrDie(runtime::MakeDevice(
      DeviceKind(), {.threads = threads, .memory_bytes_max = memory_bytes_max}));
}

// What kernels are compiled for.
inline Target DeviceTarget() { return worker::TargetOfDevice(MakeDevice()->properties()); }

inline std::string BytesOf(const runtime::DeviceBuffer& buffer) {
  std::string bytes(static_cast<size_t>(buffer.bytes()), '\0');
  OB_CHECK_OK(buffer.device().Download(buffer.address(), buffer.bytes(), bytes.data()));
  return bytes;
}
inline std::string BytesOf(const worker::DeviceArray& array) { return BytesOf(array.buffer); }

inline std::vector<float> FloatsOf(const worker::DeviceArray& array) {
  const std::string bytes = BytesOf(array);
  std::vector<float> values(bytes.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

inline void SetBytes(const worker::DeviceArray& array, std::string_view bytes) {
  OB_CHECK_OK(array.device().Upload(array.address(), bytes));
}
inline void SetFloats(const worker::DeviceArray& array, const std::vector<float>& values) {
  SetBytes(array, {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
}

// Simulates an engine's reuse of donated memory.
inline void Spoil(const worker::DeviceArray& array) {
  OB_CHECK_OK(array.device().Fill(array.address(), 0xEE, array.bytes()));
}

}  // namespace outboard::test
