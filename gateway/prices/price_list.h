// The classes of devices that a gateway rents out: what a device of each has and reaches, and what
// it costs. Read from a file of JSON (docs/prices.md). Pure. Threads: any.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gateway/ledger/money.h"
#include "gateway/ledger/use_state.h"

namespace outboard::gateway {

inline constexpr size_t kPriceClassesMax = 100;
inline constexpr size_t kHardwareOfClassMax = 100;
inline constexpr size_t kClassNameBytesMax = 32;

// What a device reaches in the rate check (worker/devices/device_rates.h). 0: it is not asked for.
struct DeviceRates {
  double gflops = 0;           // float32, of a product of matrices
  double memory_gb_per_s = 0;  // read
  bool operator==(const DeviceRates&) const = default;
  bool any() const { return gflops > 0 || memory_gb_per_s > 0; }
};

struct PriceClass {
  std::string name;                   // neutral: letters, digits, '-', '.', '_'
  std::vector<std::string> hardware;  // classes of hardware; "x*": those that begin with x
  uint64_t memory_bytes = 0;          // at least, of each device
  DeviceRates rates;                  // at least
  MicroUsd run;                       // an hour
  IdlePrices idle;
  bool operator==(const PriceClass&) const = default;
};

struct PriceList {
  std::vector<PriceClass> classes;

  const PriceClass* Find(std::string_view name) const;  // nullptr: there is none
  // The first class that a device with this hardware and memory is of; nullptr: of none.
  const PriceClass* ClassOf(std::string_view hardware, uint64_t memory_bytes) const;
  // "small, large", for people.
  std::string Names() const;
  bool operator==(const PriceList&) const = default;
};

// Errors: INVALID_ARGUMENT  names the line
absl::StatusOr<PriceList> ParsePriceList(std::string_view text);
// The same of a file. Errors: those, and NOT_FOUND or UNAVAILABLE, which name the file.
absl::StatusOr<PriceList> ReadPriceList(const std::string& path);

// Whether a device of the class reaches what the class promises, but for kRatesTolerance.
// Errors: FAILED_PRECONDITION  names what it falls short of, and by how much
absl::Status CheckRates(const PriceClass& of, const DeviceRates& measured);

// A measurement is a moment's: a device may be so much below its class.
inline constexpr double kRatesTolerance = 0.15;

}  // namespace outboard::gateway
