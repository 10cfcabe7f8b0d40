// What a session that costs something does, and what an hour of it costs: with a device it runs or
// only has it, without one its state is parked with a worker or stored by the gateway.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "gateway/ledger/money.h"

namespace outboard::gateway {

// Stored as these numbers, in entries and in rows of leases.
enum class UseState : uint8_t {
  kRun = 0,     // it has a device, and work for it
  kHeld = 1,    // it has a device, and no work
  kParked = 2,  // it has no device; its values are in a worker's memory
  kStored = 3,  // it has no device; its values are on the gateway's disk
};
inline constexpr int kUseStates = 4;

// Time in these is device time; in the others only the state of a session is kept.
constexpr bool HoldsDevice(UseState state) {
  return state == UseState::kRun || state == UseState::kHeld;
}

constexpr std::string_view NameOf(UseState state) {
  constexpr std::string_view kNames[kUseStates] = {"run", "held", "parked", "stored"};
  return kNames[static_cast<size_t>(state)];
}

// Beside the price for RUN, an hour, of each device of a session.
struct IdlePrices {
  std::optional<MicroUsd> held;  // nothing: as RUN
  MicroUsd parked, stored;
  bool operator==(const IdlePrices&) const = default;
};

constexpr MicroUsd PriceOf(UseState state, MicroUsd run, const IdlePrices& idle) {
  switch (state) {
    case UseState::kRun: return run;
    case UseState::kHeld: return idle.held.value_or(run);
    case UseState::kParked: return idle.parked;
    case UseState::kStored: return idle.stored;
  }
  return run;
}

}  // namespace outboard::gateway
