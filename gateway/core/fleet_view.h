// What a gateway has at a moment, one by one: its devices and its sessions. For operators
// (gateway/observe/operator_socket.h); nothing is decided by it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gateway/core/events.h"

namespace outboard::gateway {

struct DeviceView {
  std::string worker;  // its name, and the number of its join
  uint32_t device = 0;
  DeviceSlot slot;
  std::optional<SessionId> session;  // that holds it
  std::string state;                 // "free", "held", "out", "draining" or "aside"
  std::optional<TenantId> owner = {};  // of a machine of an account's own
};

struct SessionView {
  SessionId session;
  TenantId account;
  // "queued", "starting", "running", "idle", "detached", "sleeping", "parked", "moving", "stored"
  std::string state;
  int64_t state_s = 0;
  uint32_t devices = 1;  // that it has, or wants
  std::string worker;    // its executors'; empty: it has none
  std::string price_class;
  MicroUsd per_hour;  // what it costs now, all devices together
  Bill bill;
  std::optional<QueuePlace> place;  // in the queue
};

struct FleetView {
  std::vector<DeviceView> devices;    // by worker
  std::vector<SessionView> sessions;  // by id
};

}  // namespace outboard::gateway
