// Reads elements of a tensor in this process as C++ numbers: each is converted to T by static_cast.
// Requires that the bytes match dtype and dims.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/ir/dtype.h"
#include "compiler/ir/host_tensor.h"

namespace outboard {

template <typename T>
T ElementAt(const HostTensor& host, int64_t i) {
  const char* const place = host.bytes.data() + i * ByteWidth(host.dtype);
  return IsFloat(host.dtype) ? static_cast<T>(LoadFloat(host.dtype, place))
                             : static_cast<T>(LoadInt(host.dtype, place));
}

template <typename T>
std::vector<T> ElementsAs(const HostTensor& host) {
  std::vector<T> values(host.ElementCount());
  for (size_t i = 0; i < values.size(); ++i) values[i] = ElementAt<T>(host, i);
  return values;
}

}  // namespace outboard
