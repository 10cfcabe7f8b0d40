#include "gateway/data_path/ports.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "gateway/accounts/accounts.h"
#include "gateway/admission/open_check.h"
#include "gateway/base/limits.h"
#include "gateway/base/thrown.h"
#include "gateway/data_path/admitted.h"
#include "gateway/data_path/core_driver.h"
#include "gateway/data_path/relay.h"
#include "proto/cloud.pb.h"
#include "proto/fleet.pb.h"
#include "telemetry/counters.h"
#include "wire/limits.h"
#include "wire/merkle.h"
#include "wire/version.h"

namespace outboard::gateway {

namespace {
constexpr size_t kWhyBytesMax = 500;  // of what a worker says for people
constexpr absl::string_view kFrame = "a frame of the session";

// Of a worker whose certificate has this name. No secret.
std::string IdentityOfProved(const std::string& name) {
  return std::string(wire::AsBytes(Sha256("outboard worker's certificate " + name)));
}
// Of one that shows `identity` and proves no name: never that of one that does.
std::string IdentityOfUnproved(const std::string& identity) {
  return std::string(wire::AsBytes(Sha256("outboard worker's identity " + identity)));
}
}  // namespace

// ---- a client -----------------------------------------------------------------------------------

ClientPort::ClientPort(CoreDriver* driver, DriverHost* host, ClientAuth* auth,
                       ClientEndpoint* endpoint, Credentials credentials)
    : driver_(driver),
      host_(host),
      auth_(auth),
      endpoint_(endpoint),
      credentials_(std::move(credentials)),
      conn_(driver->AddClient(this)) {}
ClientPort::~ClientPort() = default;

void ClientPort::Begin() {
  if (!endpoint_->Hold()) return;
  auth_->Admit(credentials_, [this](absl::StatusOr<Admitted> admitted) {
    if (admitted.ok()) {
      admitted_ = std::make_unique<const Admitted>(*std::move(admitted));
      tenant_ = admitted_->identity.tenant.value;
      driver_->ClientAdmitted(conn_);
      endpoint_->ResumeReading();
    } else {
      Refuse(admitted.status());
    }
    endpoint_->Unhold();
  });
}

void ClientPort::SetRelay(std::shared_ptr<Relay> relay) {
  std::lock_guard lock(mutex_);
  relay_ = std::move(relay);
}

std::shared_ptr<Relay> ClientPort::relay() {
  std::lock_guard lock(mutex_);
  return relay_;
}

// A client whose turn comes later keeps its session: to it the connection has broken, and it tries
// again. A refusal for good ends its session.
void ClientPort::Refuse(const absl::Status& why) {
  if (absl::IsUnavailable(why)) return endpoint_->End(why);
  Relay::SendEnd(*endpoint_, why, {}, 0, 0);
}

bool ClientPort::Open(proto::ClientFrame frame) {
  if (frame.items_size() == 0 || !frame.items(0).has_open()) {
    telemetry::CountRefused(telemetry::Refusal::kFirstMessage);
    endpoint_->End(absl::InvalidArgumentError("a session must begin with Open"));
    return true;
  }
  proto::Open& open = *frame.mutable_items(0)->mutable_open();
  if (absl::Status status = TakeOpen(open); !status.ok()) {
    telemetry::CountRefused(telemetry::Refusal::kFirstMessage);
    endpoint_->End(status);
    return true;
  }
  driver_->ClientSpoke(conn_);
  const Identity& identity = admitted_->identity;
  if (absl::Status status = auth_->MayOpen(identity.tenant); !status.ok()) {
    if (!endpoint_->Hold()) return false;
    auth_->RefuseOpeningLater([this, status] {
      Refuse(status);
      endpoint_->Unhold();
    });
    return false;  // nothing more is read of it
  }
  driver_->Open(conn_, identity, open);
  return true;
}

// On a thread that serves others, too: what a frame throws ends its session alone.
bool ClientPort::OnFrame(proto::ClientFrame frame) {
  OB_CHECK(admitted_ != nullptr);
  // The one whose session is meant: the port may have another by the time that this has failed.
  const std::shared_ptr<Relay> relay = this->relay();
  const absl::StatusOr<bool> goes_on = ErrorIfThrown(
      kFrame, [&] { return Take(std::move(frame)); }, tenant_.load());
  if (goes_on.ok()) return *goes_on;
  FailOf(relay.get(), goes_on.status());
  return true;
}

absl::StatusOr<bool> ClientPort::Take(proto::ClientFrame frame) {
  if (!std::exchange(opened_, true)) return Open(std::move(frame));
  for (const proto::ClientItem& item : frame.items()) {
    if (item.has_save() &&  // it writes a name
        !admitted_->identity.rights.scopes.HasAny(KeyScope::kStore)) {
      driver_->Deny(conn_, CheckScope({}, KeyScope::kStore));
      return true;
    }
    if (item.has_leave()) {
      driver_->Leave(conn_);
      return true;
    }
    if (!item.has_close()) continue;
    driver_->Close(conn_);  // what is in the frame beside it is of no use to anybody any more
    return true;
  }
  const std::shared_ptr<Relay> relay = this->relay();
  bool is_heavy = Relay::IsHeavy(frame);
  if (!is_heavy && relay == nullptr) return true;  // before Opened there is nothing to say
  if (!is_heavy) {
    OB_ASSIGN_OR_RETURN(is_heavy, relay->MustWrite(endpoint_, frame));
  }
  if (!is_heavy) {
    host_->FramePasses(admitted_->identity.tenant);
    return Pass(std::move(frame));
  }
  if (!endpoint_->Hold()) return false;
  host_->PostFor(admitted_->identity.tenant, [this, frame = std::move(frame)]() mutable {
    const absl::Cleanup unhold = [this] { endpoint_->Unhold(); };
    if (Pass(std::move(frame))) endpoint_->ResumeReading();
  });
  return false;
}

// That the session sleeps is looked at afterwards: it is set before the relay drops the client, so
// a frame that went nowhere is always told of.
bool ClientPort::Pass(proto::ClientFrame frame) {
  const std::shared_ptr<Relay> relay = this->relay();
  if (relay == nullptr) return true;
  const auto is_work = [](const proto::ClientItem& item) {
    return item.has_run() || item.has_put() || item.has_fetch() || item.has_save() ||
           item.has_keep();
  };
  const bool has_work = std::any_of(frame.items().begin(), frame.items().end(), is_work);
  bool pause = false;
  const absl::Status status = ErrorIfThrown(
      kFrame, [&] { return relay->FromClient(endpoint_, std::move(frame), pause); },
      tenant_.load());
  if (!status.ok()) FailOf(relay.get(), status);
  if (has_work && sleeping_.exchange(false)) driver_->ClientActs(conn_);
  return !pause;
}

// Ends the session of `relay`, or of this connection where there is none. What was thrown is no
// fault of the client's: its session is lost, whoever is connected to it by now.
void ClientPort::FailOf(const Relay* relay, const absl::Status& why) {
  if (!IsThrown(why)) return Fail(why);
  if (relay != nullptr) return driver_->FailSession(relay->session(), why);
  telemetry::CountRefused(telemetry::Refusal::kFault);
  driver_->Fail(conn_, why);
  endpoint_->End(why);  // where nothing had begun
}

// Ends the session, as any violation of the protocol does.
void ClientPort::Fail(const absl::Status& why) {
  telemetry::CountRefused(telemetry::Refusal::kProtocol);
  driver_->Fail(conn_, why);
}

void ClientPort::OnBadFrame(const absl::Status& why) {
  if (opened_) return Fail(why);
  telemetry::CountRefused(telemetry::Refusal::kFirstMessage);
  endpoint_->End(why);
}

void ClientPort::OnReadEnd() {
  driver_->ClientBroke(conn_);
  endpoint_->End(absl::OkStatus());
}
void ClientPort::OnWritable() {
  if (auto relay = this->relay(); relay != nullptr) relay->ClientWritable();
}
void ClientPort::OnGone() { driver_->RemoveClient(conn_); }

// ---- an executor --------------------------------------------------------------------------------

absl::Status ExecutorPort::Attach(SessionId session, Token token, uint32_t rank) {
  auto relay = driver_->Attach(session, token, endpoint_, rank);
  if (!relay.ok()) return relay.status();
  session_ = session;
  rank_ = rank;
  relay_ = *std::move(relay);
  left_ = false;
  return absl::OkStatus();
}

// It may be an account's own machine: what its frame throws ends the session alone.
bool ExecutorPort::OnFrame(proto::ServerFrame frame) {
  bool pause = false;
  const absl::Status status = ErrorIfThrown(
      "a frame of the session's executor",
      [&] {
        relay_->FromExecutor(endpoint_, std::move(frame), pause);
        return absl::OkStatus();
      },
      relay_->tenant().value);
  if (!status.ok()) driver_->FailSession(session_, status);
  return !pause;
}

void ExecutorPort::OnWritable() { relay_->ExecutorWritable(endpoint_); }

void ExecutorPort::Leave() {
  if (left_.exchange(true)) return;
  // The driver may have forgotten the session, but a client's stream may still hold the relay.
  relay_->DropExecutor(endpoint_);
  driver_->Detached(session_, relay_.get(), rank_);
}

// ---- a worker -----------------------------------------------------------------------------------

WorkerPort::~WorkerPort() = default;

void WorkerPort::SetOwner(const Identity& owner) {
  owner_ = std::make_unique<const Identity>(owner);
}

void WorkerPort::SetNode(const std::string& serial,
                         std::function<void(const absl::Status&)> tested) {
  node_ = std::make_unique<const Node>(Node{serial, std::move(tested)});
}

// Asks once for a measurement: what comes back is checked like one from before.
void WorkerPort::Join(proto::Register reg) {
  if (owner_ != nullptr) {
    if (const absl::Status may = driver_->CheckOwnJoin(owner_->tenant); !may.ok())
      return Refuse(reg.name(), may);
    worker_ = driver_->AddWorker(endpoint_, reg, owner_.get());
    return;
  }
  const absl::StatusOr<bool> measure = driver_->CheckJoin(reg);
  if (!measure.ok()) return Refuse(reg.name(), measure.status());
  const bool test = node_ != nullptr && !reg.tested();
  if (test && !reg.measures())
    return Refuse(reg.name(),
                  absl::FailedPreconditionError("this node is too old for a join test"));
  if (!*measure && !test) {
    if (node_ != nullptr) node_->tested(absl::OkStatus());
    worker_ = driver_->AddWorker(endpoint_, reg, nullptr, node_ != nullptr ? node_->serial : "");
    return;
  }
  proto::GatewayCommand command;
  command.mutable_measure()->set_test(test);
  command.mutable_measure()->set_without_rates(!*measure);
  measured_ = std::make_unique<proto::Register>(std::move(reg));
  measures_rates_ = *measure;
  endpoint_->Send(std::move(command));
}

void WorkerPort::OnMeasured(const proto::Measured& measured) {
  proto::Register reg = std::move(*std::exchange(measured_, nullptr));
  const auto shown = [](const std::string& told) {
    return absl::CHexEscape(told.substr(0, kWhyBytesMax));
  };
  if (!measured.fault().empty())
    return Refuse(reg.name(), absl::FailedPreconditionError(absl::StrCat(
                                  "the join test failed: ", shown(measured.fault()))));
  // Asked once: a node that was to be tested and was not is no other the next time.
  if (node_ != nullptr && !measured.tested())
    return Refuse(reg.name(), absl::FailedPreconditionError(absl::StrCat(
                                  "the join test did not end: ", shown(measured.failed()))));
  reg.set_tested(true);
  if (measures_rates_ && measured.rates_size() != reg.devices_size())
    return Refuse(reg.name(),
                  absl::FailedPreconditionError(absl::StrCat(
                      "the worker could not measure its devices: ",
                      shown(measured.failed()))));
  for (int i = 0; measures_rates_ && i < measured.rates_size(); ++i)
    *reg.mutable_devices(i)->mutable_rates() = measured.rates(i);
  Join(std::move(reg));
}

void WorkerPort::Refuse(const std::string& name, const absl::Status& why) {
  if (node_ != nullptr) node_->tested(why);
  driver_->OnJoinRefused(name, why);
  endpoint_->End(why);
}

// It may be an account's own machine: what it says and is thrown ends its stream alone, as if that
// had broken.
void WorkerPort::OnEvent(const proto::WorkerEvent& event) {
  const absl::Status status = ErrorIfThrown(
      "what a worker says",
      [&] {
        Take(event);
        return absl::OkStatus();
      },
      owner_ == nullptr ? std::nullopt : std::optional(owner_->tenant.value));
  if (!status.ok()) endpoint_->End(status);
}

void WorkerPort::Take(const proto::WorkerEvent& event) {
  if (worker_.value == 0 && measured_ != nullptr) {
    if (event.has_measured()) OnMeasured(event.measured());
    return;  // what else it says, it says of a worker that has not joined
  }
  if (worker_.value == 0) {
    if (!event.has_register_())
      return endpoint_->End(absl::InvalidArgumentError("a worker must begin with Register"));
    proto::Register reg = event.register_();
    const auto protocol = wire::AgreeOn(reg.protocol(), wire::kProtocolOfWorkers,
                                        "the worker speaks protocol", "this gateway");
    if (!protocol.ok()) {
      telemetry::CountRefused(telemetry::Refusal::kProtocol);
      return endpoint_->End(protocol.status());
    }
    if (reg.devices_size() == 0 || reg.devices_size() > static_cast<int>(kDevicesPerWorkerMax)) {
      return endpoint_->End(absl::InvalidArgumentError(absl::StrCat(
          "a worker with ", reg.devices_size(), " devices; limit ", kDevicesPerWorkerMax)));
    }
    if (reg.sessions_size() > static_cast<int>(kWorkerSessionsMax))
      return endpoint_->End(absl::InvalidArgumentError(absl::StrCat(
          "a worker with ", reg.sessions_size(), " sessions; limit ", kWorkerSessionsMax)));
    if (!proved_name_.empty()) {
      reg.set_name(proved_name_);
      reg.set_identity(IdentityOfProved(proved_name_));
    } else if (reg.identity().size() == kWorkerIdentityBytes) {
      reg.set_identity(IdentityOfUnproved(reg.identity()));
    }
    return Join(std::move(reg));
  }
  if (!driver_->MaySpeak(worker_)) return;
  switch (event.kind_case()) {
    case proto::WorkerEvent::kHeartbeat: {
      driver_->OnHeartbeat(worker_, event.heartbeat());
      proto::GatewayCommand ack;
      ack.mutable_heartbeat_ack()->set_beat(event.heartbeat().beat());
      endpoint_->Send(std::move(ack));
      if (event.heartbeat().receipts_size() > 0)
        driver_->OnReceipts(
            worker_,
            {event.heartbeat().receipts().begin(), event.heartbeat().receipts().end()},
            /*is_last=*/false);
      break;
    }
    case proto::WorkerEvent::kReceipt:
      driver_->OnReceipts(worker_, {event.receipt()}, /*is_last=*/true);
      break;
    case proto::WorkerEvent::kSessionEnded:
      driver_->OnSessionEnded(worker_, event.session_ended());
      break;
    case proto::WorkerEvent::kDeviceOut:
      driver_->OnDeviceOut(worker_, event.device_out());
      break;
    case proto::WorkerEvent::kLinkMeasured:
      driver_->OnLinkMeasured(worker_, event.link_measured());
      break;
    case proto::WorkerEvent::kDraining: driver_->OnDraining(worker_); break;
    default: break;
  }
}

void WorkerPort::OnGone() {
  if (worker_.value != 0) driver_->RemoveWorker(worker_);
}

}  // namespace outboard::gateway
