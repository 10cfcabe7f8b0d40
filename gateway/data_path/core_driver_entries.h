// What CoreDriver knows of a client, a worker and a session: one entry each. Only its own files
// read this.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "gateway/accounts/accounts.h"
#include "gateway/data_path/core_driver.h"
#include "gateway/data_path/ports.h"
#include "gateway/data_path/relay.h"
#include "proto/cloud.pb.h"

namespace outboard::gateway {

struct CoreDriver::Client {
  ClientPort* port;
  Identity identity;
  proto::Open open;
  Token resume_token;
  std::shared_ptr<Relay> relay;  // since its session was live

  ClientEndpoint& endpoint() const { return port->endpoint(); }
};

struct CoreDriver::Worker {
  WorkerEndpoint* endpoint;
  std::string name;
  uint32_t protocol;  // chosen
};

// All that the driver knows of a session.
struct CoreDriver::Session {
  std::shared_ptr<Relay> relay;  // D1
  Relay::Plan plan;              // of the last relay, while there is none
  ValuesEndpoint* values = nullptr;
  std::optional<Token> attach_hash;   // of the last Assign
  std::optional<WallTime> opened_at;  // for its row
  // Its executor's stream ended, and its worker has not said why yet.
  std::optional<MonoTime> streamless_since;
};

}  // namespace outboard::gateway
