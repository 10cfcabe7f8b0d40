// What tests of the machine share: texts of kernels, memory with values, launches.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"
#include "tests/gpu/ptx/machine.h"
#include "tests/gpu/ptx/tensor_map.h"

namespace outboard::ptx {

// For the figures (tests/bench/gpu_test_figures.cc); a test that ends early records none as found.
inline void RecordFaults(size_t planted, size_t found) {
  testing::Test::RecordProperty("faults_planted", static_cast<int>(planted));
  testing::Test::RecordProperty("faults_found", static_cast<int>(found));
}

// A module with one kernel `k`. `parameters` are types, named p0, p1, ...; registers of every kind
// are declared. `directives` stand behind the parameters (.maxntid and the like).
inline std::string KernelText(const std::vector<std::string>& parameters, const std::string& body,
                              const std::string& data = "", const std::string& directives = "") {
  std::string text = absl::StrCat(".version 8.0\n.target sm_90a\n.address_size 64\n", data,
                                  "\n.visible .entry k(");
  for (size_t i = 0; i < parameters.size(); ++i)
    absl::StrAppend(&text, i > 0 ? ", " : "", ".param ", parameters[i], " p", i,
                    parameters[i].find("b8") != std::string::npos ? "[128]" : "");
  absl::StrAppend(
      &text, ")\n", directives,
      "\n{\n.reg .pred %p<40>;\n.reg .b16 %h<100>;\n.reg .b32 %r<200>;\n.reg .f32 %f<200>;\n"
      ".reg .b64 %d<100>;\n.reg .f64 %g<100>;\n",
      body, "\nret;\n}\n");
  return text;
}

// A machine with its memory, and one module.
class Bench {
 public:
  explicit Bench(const std::string& text, MachineOptions options = {}) : machine(&memory, options) {
    absl::StatusOr<std::unique_ptr<LoadedModule>> loaded = machine.Load(text);
    EXPECT_TRUE(loaded.ok()) << loaded.status() << "\n" << text;
    if (loaded.ok()) module = *std::move(loaded);
  }

  template <class T>
  uint64_t Put(const std::vector<T>& values) {
    const uint64_t address = memory.Allocate(values.size() * sizeof(T));
    memory.Write(address, values.data(), values.size() * sizeof(T));
    return address;
  }
  template <class T>
  std::vector<T> Take(uint64_t address, size_t count) {
    std::vector<T> values(count);
    EXPECT_TRUE(memory.Read(address, values.data(), count * sizeof(T)));
    return values;
  }
  template <class T>
  void Argument(const T& value) {
    std::vector<uint8_t>& bytes = config.parameters;
    const size_t align = sizeof(T) == 128 ? 64 : sizeof(T);
    bytes.resize((bytes.size() + align - 1) / align * align + sizeof(T));
    std::memcpy(bytes.data() + bytes.size() - sizeof(T), &value, sizeof(T));
  }
  absl::Status Launch(uint32_t grid, uint32_t block) {
    config.grid = {grid, 1, 1};
    config.block = {block, 1, 1};
    return machine.Launch(*module, "k", config);
  }
  // The kinds of all reports, each once, as a text.
  std::string Kinds() const {
    std::string kinds;
    for (const Report& report : machine.reports()) {
      if (kinds.find(NameOf(report.kind)) != std::string::npos) continue;
      absl::StrAppend(&kinds, kinds.empty() ? "" : " ", NameOf(report.kind));
    }
    return kinds;
  }

  DeviceMemory memory;
  Machine machine;
  std::unique_ptr<LoadedModule> module;
  LaunchConfig config;
};

// A matrix of two dimensions for TMA, row by row.
inline TensorMap MapOf(uint64_t address, uint64_t columns, uint64_t rows, int box_columns,
                       int box_rows, int element_bytes, int swizzle) {
  TensorMap map;
  map.rank = 2;
  map.swizzle = static_cast<uint8_t>(swizzle);
  map.address = address;
  map.dims[0] = columns;
  map.dims[1] = rows;
  map.strides[0] = columns * static_cast<uint64_t>(element_bytes);
  map.box[0] = static_cast<uint16_t>(box_columns);
  map.box[1] = static_cast<uint16_t>(box_rows);
  map.element_strides[0] = map.element_strides[1] = 1;
  map.element_bytes = static_cast<uint8_t>(element_bytes);
  return map;
}

inline std::vector<uint16_t> BfloatMatrix(size_t count, uint32_t seed) {
  std::vector<uint16_t> values(count);
  for (uint16_t& value : values) {
    seed = seed * 1664525 + 1013904223;
    value = FloatToBfloat(static_cast<float>(static_cast<int>(seed >> 24) - 128) / 64);
  }
  return values;
}
// Rows of A times rows of B: C[i][j] = sum over k of A[i][k] * B[j][k].
inline std::vector<float> ProductOf(const std::vector<uint16_t>& a, const std::vector<uint16_t>& b,
                                    size_t m, size_t n, size_t k) {
  std::vector<float> c(m * n);
  for (size_t i = 0; i < m; ++i)
    for (size_t j = 0; j < n; ++j) {
      double sum = 0;
      for (size_t e = 0; e < k; ++e)
        sum += double{BfloatToFloat(a[i * k + e])} * BfloatToFloat(b[j * k + e]);
      c[i * n + j] = static_cast<float>(sum);
    }
  return c;
}

}  // namespace outboard::ptx
