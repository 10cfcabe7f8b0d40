// A worker that was taken over: it has the fleet secret and its own sessions' tokens, and lies. The
// gateway checks epochs, tokens and owners itself, and counts time by its own clock.
//
// For a session to come to it, all other devices are taken first.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gateway/server/fleet_secret.h"
#include "proto/fleet.grpc.pb.h"
#include "tests/hostile/hostile_case.h"
#include "tests/support/client_items.h"
#include "tests/support/raw_session.h"
#include "wire/merkle.h"
#include "wire/version.h"

namespace outboard::test {
namespace {

using absl::StatusCode;
using std::chrono::milliseconds;

// One device, and no engine behind it.
class RogueWorker {
 public:
  explicit RogueWorker(HostileWorld& world, const std::string& name = "rogue",
                       const std::vector<proto::HeldSession>& held = {})
      : secret_(gateway::ReadFleetSecret(gateway::FleetSecretPath(world.cluster().data())).value()),
        channel_(ChannelFrom(world.cluster().fleet_target(), "127.0.0.6")),
        fleet_(proto::Fleet::NewStub(channel_)),
        blobs_(proto::Blobs::NewStub(channel_)) {
    join_context_.AddMetadata("authorization", "Bearer " + secret_);
    join_ = fleet_->Join(&join_context_);
    proto::WorkerEvent event;
    proto::Register& reg = *event.mutable_register_();
    reg.set_name(name);
    reg.set_identity(("the identity of " + name + std::string(32, '.')).substr(0, 32));
    wire::SetRange(wire::kProtocolOfWorkers, *reg.mutable_protocol());
    wire::SetRange(wire::kGraphSchemas, *reg.mutable_graph_schema());
    reg.add_devices()->set_kind("fake");
    for (const proto::HeldSession& session : held) *reg.add_sessions() = session;
    join_->Write(event);
    reader_ = std::thread([this] { Read(); });
  }
  ~RogueWorker() {
    if (attached_ != nullptr) {
      attach_context_.TryCancel();
      attached_->Finish();
    }
    join_context_.TryCancel();
    reader_.join();
    join_->Finish();
  }

  std::optional<proto::Welcome> AwaitWelcome() { return Await(welcome_); }
  std::optional<proto::Assign> AwaitAssign() { return Await(assign_); }
  std::optional<proto::ReleaseSession> AwaitRelease() { return Await(release_); }
  bool HasAssign() {
    std::lock_guard lock(mutex_);
    return assign_.has_value();
  }
  void Tell(const proto::WorkerEvent& event) { join_->Write(event); }
  void Beat(const std::vector<std::string>& sessions) {
    proto::WorkerEvent event;
    event.mutable_heartbeat()->set_beat(++beat_);
    for (const std::string& id : sessions) event.mutable_heartbeat()->add_sessions(id);
    Tell(event);
  }

  // Attaches as the executor of `session`; the answer if it is refused.
  absl::Status Attach(const std::string& session, const std::string& token) {
    Name(attach_context_, session, token);
    attached_ = fleet_->Attach(&attach_context_);
    proto::ClientFrame frame;
    if (attached_->Read(&frame)) {
      epoch_ = frame.epoch();
      return absl::OkStatus();
    }
    const grpc::Status status = attached_->Finish();
    attached_.reset();
    return wire::FromGrpc(status);
  }
  // An attempt that is not to succeed.
  absl::Status TryAttach(const std::string& session, const std::string& token) {
    grpc::ClientContext context;
    Name(context, session, token);
    auto stream = fleet_->Attach(&context);
    proto::ClientFrame frame;
    EXPECT_FALSE(stream->Read(&frame));
    return wire::FromGrpc(stream->Finish());
  }
  absl::Status Keep(const std::string& session, const std::string& token) {
    grpc::ClientContext context;
    Name(context, session, token);
    proto::KeepRequest request;
    request.set_manifest_root(std::string(32, 'm'));
    request.set_seq(1);
    proto::KeepReply reply;
    return wire::FromGrpc(fleet_->Keep(&context, request, &reply));
  }
  absl::Status AskBlobs(const std::string& session, const std::string& token) {
    grpc::ClientContext context;
    Name(context, session, token);
    proto::MissingRequest request;
    request.add_chunks(std::string(32, 'c'));
    proto::MissingReply reply;
    return wire::FromGrpc(blobs_->Missing(&context, request, &reply));
  }

  void Send(uint64_t epoch, const proto::ServerItem& item) {
    proto::ServerFrame frame;
    frame.set_epoch(epoch);
    *frame.add_items() = item;
    attached_->Write(frame);
  }
  void SendOpened() {
    proto::ServerItem item;
    item.mutable_opened()->set_protocol(wire::kProtocolVersion);
    item.mutable_opened()->mutable_device()->set_kind("fake");
    item.mutable_opened()->set_devices(1);
    Send(epoch_, item);
  }
  uint64_t epoch() const { return epoch_; }

 private:
  void Name(grpc::ClientContext& context, const std::string& session, const std::string& token) {
    context.AddMetadata("authorization", "Bearer " + secret_);
    context.AddMetadata("outboard-session", wire::ToHex(session));
    context.AddMetadata("outboard-token", wire::ToHex(token));
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  }
  template <typename T>
  std::optional<T> Await(const std::optional<T>& what) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(15), [&] { return what.has_value(); });
    return what;
  }
  void Read() {
    for (proto::GatewayCommand command; join_->Read(&command);) {
      std::lock_guard lock(mutex_);
      if (command.has_welcome()) welcome_ = command.welcome();
      if (command.has_assign()) assign_ = command.assign();
      if (command.has_release()) release_ = command.release();
      changed_.notify_all();
    }
  }

  const std::string secret_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<proto::Fleet::Stub> fleet_;
  const std::unique_ptr<proto::Blobs::Stub> blobs_;
  grpc::ClientContext join_context_, attach_context_;
  std::unique_ptr<grpc::ClientReaderWriter<proto::WorkerEvent, proto::GatewayCommand>> join_;
  std::unique_ptr<grpc::ClientReaderWriter<proto::ServerFrame, proto::ClientFrame>> attached_;
  uint64_t epoch_ = 0, beat_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<proto::Welcome> welcome_;
  std::optional<proto::Assign> assign_;
  std::optional<proto::ReleaseSession> release_;
  std::thread reader_;
};

// A session of mallory's whose executor is the rogue.
struct RogueSession {
  // The sessions that have the other devices: those of the honest account stay free of the rogue.
  std::vector<std::unique_ptr<RawSession>> fillers;
  std::unique_ptr<RogueWorker> rogue;
  std::unique_ptr<RawSession> client;
  proto::Assign assign;
  bool ok = false;

  explicit RogueSession(HostileWorld& world, const std::string& name = "rogue") {
    const auto channel = ChannelFrom(world.target(), "127.0.0.2");
    // One more than there are devices: the last waits, and comes to the next worker that joins.
    for (int i = 0; i <= HostileWorld::kDevices; ++i) {
      client = std::make_unique<RawSession>(channel, world.mallory_key());
      client->Open("", /*or_queued=*/true);
      if (!client->IsOpenedOrQueued()) break;
      fillers.push_back(std::move(client));
    }
    rogue = std::make_unique<RogueWorker>(world, name);
    EXPECT_TRUE(rogue->AwaitWelcome().has_value());
    if (const auto assigned = rogue->AwaitAssign()) {
      assign = *assigned;
      const absl::Status attached = rogue->Attach(assign.session_id(), assign.attach_token());
      EXPECT_TRUE(attached.ok()) << attached;
      ok = attached.ok();
      if (ok) rogue->SendOpened();
    } else {
      ADD_FAILURE() << "no session came to the rogue";
    }
    if (ok) client->AwaitOpened();
    rogue->Beat({assign.session_id()});
  }
};

// The gateway has logged an offence of this kind.
bool IsFlagged(HostileWorld& world, const std::string& kind) {
  return Eventually([&] {
    const std::string log = world.gateway().err();
    for (size_t at = 0; (at = log.find("event=worker_offence", at)) != std::string::npos; ++at)
      if (log.substr(at, log.find('\n', at) - at).find(kind) != std::string::npos) return true;
    return false;
  });
}

proto::ServerItem ValueItem(uint64_t seq, const std::string& bytes) {
  proto::ServerItem item;
  proto::Done& done = *item.mutable_done();
  done.set_through_seq(seq);
  proto::Value& value = *done.add_values();
  value.set_seq(seq);
  value.set_dtype(static_cast<uint32_t>(DType::kU8));
  value.add_dims(bytes.size());
  value.set_total_bytes(bytes.size());
  value.set_data(bytes);
  return item;
}

}  // namespace

absl::Status NodeStaleEpoch(HostileWorld& world) {
  RogueSession of(world);
  if (!of.ok) return absl::UnknownError("no session");
  RogueWorker& rogue = *of.rogue;
  of.client->Send({Item::Put(1, 1, "x"), Item::Fetch(2, 1)});
  for (const uint64_t epoch : {rogue.epoch() - 1, rogue.epoch() + 1, uint64_t{0}, UINT64_MAX})
    rogue.Send(epoch, ValueItem(2, "of another epoch"));
  rogue.Send(rogue.epoch(), ValueItem(2, "of this one"));
  RawSession::Answer answer;
  EXPECT_TRUE(of.client->Next(answer));
  EXPECT_EQ(answer.value, "of this one");
  of.client.reset();  // closes the session: the rogue's token is of the past
  const std::string& id = of.assign.session_id();
  const std::string& token = of.assign.attach_token();
  absl::Status kept;
  EXPECT_TRUE(Eventually([&] {
    return (kept = rogue.Keep(id, token)).code() == StatusCode::kAborted;
  })) << kept;
  EXPECT_EQ(world.replies().Note(rogue.TryAttach(id, token)).code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(world.replies().Note(rogue.AskBlobs(id, token)).code(), StatusCode::kPermissionDenied);
  return kept;
}

absl::Status NodeOfOtherAccount(HostileWorld& world) {
  RawSession victim(ChannelFrom(world.target(), "127.0.0.1"), world.honest().key());
  victim.Open();
  victim.Send({Item::Put(1, 1, "an honest value")});
  const std::string& id = victim.opened().session_id();
  RogueSession of(world, "liar");
  if (!of.ok) return absl::UnknownError("no session");
  RogueWorker& rogue = *of.rogue;
  const std::string& own_token = of.assign.attach_token();
  // With its own token, or the client's: neither is the executor's.
  for (const std::string& token : {own_token, victim.opened().resume_token()}) {
    EXPECT_EQ(world.replies().Note(rogue.TryAttach(id, token)).code(),
              StatusCode::kPermissionDenied);
    EXPECT_EQ(world.replies().Note(rogue.AskBlobs(id, token)).code(),
              StatusCode::kPermissionDenied);
    EXPECT_EQ(world.replies().Note(rogue.Keep(id, token)).code(), StatusCode::kAborted);
  }
  // Nor does its word end the session, under any number of a placement.
  for (const uint64_t placement : {0, 1, 2}) {
    proto::WorkerEvent ended;
    ended.mutable_session_ended()->set_session_id(id);
    ended.mutable_session_ended()->set_code(14);
    ended.mutable_session_ended()->set_message("ended by somebody else");
    ended.mutable_session_ended()->set_placement(placement);
    rogue.Tell(ended);
  }
  rogue.Beat({id, of.assign.session_id()});
  // What it sends of a value reaches its own client alone.
  rogue.Send(rogue.epoch(), ValueItem(2, "for another account"));
  victim.Send({Item::Fetch(2, 1)});
  RawSession::Answer answer;
  EXPECT_TRUE(victim.Next(answer));
  EXPECT_EQ(answer.value, "an honest value");
  const absl::Status kept = rogue.Keep(id, own_token);
  // It is set aside: its own session is taken from it, and whoever waits does not come to it, also
  // when it joins again. An operator sees why, and lifts it.
  const auto listed = [&](const std::string& what) {
    return Outboard("quarantine " + what + " --data " + world.cluster().data());
  };
  EXPECT_TRUE(Eventually([&] {
    return listed("ls").out.find("it spoke for a session") != std::string::npos;
  })) << listed("ls").out;
  EXPECT_TRUE(Eventually([&] { return rogue.AwaitRelease().has_value(); }));
  EXPECT_NE(world.gateway().err().find("event=worker_set_aside worker=liar#"), std::string::npos)
      << world.gateway().err();
  // Devices come free while this goes on, of sessions of the cases before.
  std::vector<std::unique_ptr<RawSession>> more;
  const auto open_until = [&](const std::function<bool()>& enough) {
    for (int i = 0; i < 2 * HostileWorld::kDevices; ++i) {
      if (enough()) return true;
      more.push_back(std::make_unique<RawSession>(ChannelFrom(world.target(), "127.0.0.2"),
                                                  world.mallory_key()));
      more.back()->Open("", /*or_queued=*/true);
    }
    return enough();
  };
  EXPECT_TRUE(open_until([&] { return !more.empty() && !more.back()->IsOpenedOrQueued(); }));
  of.rogue.reset();
  RogueWorker again(world, "liar");
  EXPECT_TRUE(again.AwaitWelcome().has_value());
  std::this_thread::sleep_for(milliseconds(500));
  EXPECT_FALSE(again.HasAssign());
  EXPECT_EQ(listed("lift liar").code, 0);
  EXPECT_TRUE(Eventually(
      [&] { return world.gateway().err().find("event=worker_lifted") != std::string::npos; }));
  EXPECT_TRUE(open_until([&] { return Eventually([&] { return again.HasAssign(); }, 1); }));
  EXPECT_EQ(listed("ls").out, "");
  EXPECT_EQ(listed("lift liar").code, 1);
  return kept;
}

absl::Status NodeUsageOverHold(HostileWorld& world) {
  const auto begin = std::chrono::steady_clock::now();
  HostileClient mallory = world.Mallory();
  proto::UsageReply usage;
  std::string id;
  {
    RogueSession of(world);
    if (!of.ok) return absl::UnknownError("no session");
    id = wire::ToHex(of.assign.session_id());
    of.client->Send({Item::Put(1, 1, "x"), Item::Fetch(2, 1)});
    proto::ServerItem item = ValueItem(2, "v");
    proto::Done& done = *item.mutable_done();
    done.set_cost_micro_usd(UINT64_MAX);
    done.set_seconds_billed(UINT64_MAX);
    done.set_device_time_us(UINT64_MAX);
    of.rogue->Send(of.rogue->epoch(), item);
    RawSession::Answer answer;
    EXPECT_TRUE(of.client->Next(answer));
    EXPECT_LT(of.client->last_done().cost_micro_usd(), 60'000'000u);  // a minute's
    EXPECT_LT(of.client->last_done().seconds_billed(), 60u);
    EXPECT_LT(of.client->last_done().device_time_us(), 60'000'000u);  // capped, and told
    EXPECT_TRUE(IsFlagged(world, "kind=device_time"));
  }
  EXPECT_TRUE(mallory.Unary(&proto::Account::Stub::Usage, proto::UsageRequest(), &usage).ok());
  const auto held_ms = static_cast<uint64_t>(
      std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - begin).count());
  bool found = false;
  for (const proto::UsageLine& line : usage.lines()) {
    if (line.session_id() != id) continue;
    found = true;
    EXPECT_LE(line.used_ms(), held_ms);
    EXPECT_LE(line.seconds_billed() * 1000, held_ms);
    EXPECT_LE(line.cost_micro_usd(), held_ms * 1000);  // 1 USD a second
  }
  EXPECT_TRUE(found);
  return absl::OkStatus();
}

absl::Status NodeUsageOverlap(HostileWorld& world) {
  RawSession victim(ChannelFrom(world.target(), "127.0.0.1"), world.honest().key());
  const auto begin = std::chrono::steady_clock::now();
  victim.Open();
  const std::string id = victim.opened().session_id();
  {
    // It says that it holds the session already, with a token that it made up, on two devices.
    proto::HeldSession held;
    held.set_session_id(id);
    held.set_attach_token(std::string(16, 't'));
    held.set_placement(1);
    held.add_devices(0);
    held.add_devices(0);
    RogueWorker rogue(world, "rogue", {held, held});
    const auto welcome = rogue.AwaitWelcome();
    EXPECT_TRUE(welcome.has_value());
    EXPECT_EQ(welcome.value_or(proto::Welcome()).sessions_size(), 0);
    EXPECT_TRUE(IsFlagged(world, "kind=claim"));
    for (int i = 0; i < 5; ++i) {
      rogue.Beat({id, id, id});
      std::this_thread::sleep_for(milliseconds(300));
    }
  }
  victim.Send({Item::Put(1, 1, "an honest value"), Item::Fetch(2, 1)});
  RawSession::Answer answer;
  EXPECT_TRUE(victim.Next(answer));
  EXPECT_EQ(answer.value, "an honest value");
  HostileClient honest = world.ClientOf(world.honest().key(), "127.0.0.1");
  proto::UsageReply usage;
  EXPECT_TRUE(honest.Unary(&proto::Account::Stub::Usage, proto::UsageRequest(), &usage).ok());
  const auto held_ms = static_cast<uint64_t>(
      std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - begin).count());
  for (const proto::UsageLine& line : usage.lines()) {
    if (line.session_id() != wire::ToHex(id)) continue;
    EXPECT_EQ(line.devices(), 1u);
    EXPECT_LE(line.used_ms(), held_ms);
    EXPECT_LE(line.cost_micro_usd(), held_ms * 1000);
  }
  return absl::OkStatus();
}

}  // namespace outboard::test
