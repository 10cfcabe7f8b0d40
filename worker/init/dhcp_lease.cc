#include "worker/init/dhcp_lease.h"

#include <algorithm>
#include <utility>

namespace outboard::worker {

DhcpLease::DhcpLease(const MacAddress& mac, double now, std::function<uint32_t()> random)
    : mac_(mac), random_(std::move(random)) {
  Begin(State::kDiscovering, now);
}

// Between 3/4 and 5/4: a hundred machines that were switched on together do not ask together.
double DhcpLease::Jittered(double seconds) {
  return seconds * (0.75 + 0.5 * static_cast<double>(random_()) / 4294967296.0);
}

void DhcpLease::Begin(State state, double now) {
  // A request goes on with the transaction of its offer.
  if (state != State::kRequesting) transaction_ = random_();
  if (state == State::kDiscovering) began_at_ = now;
  state_ = state;
  tries_ = 0;
  next_at_ = now;
}

std::optional<std::string> DhcpLease::Due(double now) {
  if (lease_.has_value() && now >= ends_at_) {
    lease_.reset();
    Begin(State::kDiscovering, now);
  }
  if (now < next_at_) return std::nullopt;
  if (state_ == State::kBound) Begin(State::kRenewing, now);
  if (state_ == State::kRequesting && tries_ == kRequestsMost) Begin(State::kDiscovering, now);
  DhcpQuestion question{
      .type = state_ == State::kDiscovering ? DhcpType::kDiscover : DhcpType::kRequest,
      .transaction = transaction_,
      .mac = mac_,
      .seconds = static_cast<uint16_t>(std::min(now - began_at_, 65535.0))};
  if (state_ == State::kRequesting) {
    question.requested = offer_.address;
    question.server = offer_.server;
  }
  if (state_ == State::kRenewing) question.client = lease_->address;
  next_at_ = now + Jittered(static_cast<double>(1 << std::min(tries_, 5)));
  if (lease_.has_value()) next_at_ = std::min(next_at_, ends_at_);
  ++tries_;
  return Encode(question);
}

bool DhcpLease::On(std::string_view packet, double now) {
  const auto answer = DecodeDhcp(packet, transaction_, mac_);
  if (!answer.ok()) return false;
  switch (state_) {
    case State::kDiscovering:
      if (answer->type != DhcpType::kOffer) return false;
      offer_ = *answer;
      Begin(State::kRequesting, now);
      return false;
    case State::kRequesting:
    case State::kRenewing:
      if (answer->type == DhcpType::kNak) {
        const bool had = lease_.has_value();
        lease_.reset();
        Begin(State::kDiscovering, now);
        return had;
      }
      if (answer->type != DhcpType::kAck) return false;
      lease_ = *answer;
      ends_at_ = now + answer->lease_s;
      state_ = State::kBound;
      next_at_ = now + Jittered(answer->lease_s / 2.0);
      return true;
    case State::kBound: return false;
  }
  return false;
}

}  // namespace outboard::worker
