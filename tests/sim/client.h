// A program with its session: makes items at its own pace, knows the expected value of each, and
// reports a wrong value, a session that ends without reason, or a wait that lasts long after the
// faults have stopped. One with a name dies now and then; another process of the same program
// enters its session, and finds the arrays that were kept as they were at the last applied item.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/session/core/session_core.h"
#include "compiler/ir/build.h"
#include "compiler/ir/encoding.h"
#include "tests/sim/fake_engine.h"
#include "tests/sim/gateway.h"
#include "tests/sim/rival.h"

namespace outboard::sim {

// What an array holds, and its hash: of a large one made once, and shared by all that hold it.
class Value {
 public:
  Value() = default;
  Value(std::string bytes) : bytes_(std::move(bytes)), hash_(HashOf(bytes_)) {}  // NOLINT
  explicit Value(std::shared_ptr<const std::string> shared)
      : shared_(std::move(shared)), hash_(HashOf(*shared_)) {}
  const std::string& bytes() const { return shared_ != nullptr ? *shared_ : bytes_; }
  uint64_t hash() const { return hash_; }

 private:
  std::string bytes_;
  std::shared_ptr<const std::string> shared_;
  uint64_t hash_ = HashOf("");
};

class Client {
 public:
  Client(World* world, Gateway* gateway, int number, int items, uint32_t devices, bool has_name)
      : world_(world),
        gateway_(gateway),
        number_(number),
        items_(items),
        devices_(devices),
        name_(has_name ? absl::StrCat("run", number) : "") {
    Graph g;
    const UOp* const x = Param(g, 0, DType::kF32, {2});
    const UOp* const y = Param(g, 1, DType::kF32, {2});
    for (const UOp* const sink : {Sink(g, {Add(g, x, y), Mul(g, x, y)}), Sink(g, {Mul(g, x, y)})})
      graphs_.push_back(*EncodeGraph(sink));
    for (uint32_t rank = 0; rank < devices && devices > 1; ++rank) of_ranks_[rank] = {};
  }

  void Start() {
    core_.Name(name_);
    core_.Open(devices_);
    Dial();
    Pace();
  }
  bool done() const { return done_; }
  std::string Waiting() const {
    return absl::StrCat("client ", number_, ": ", made_, " of ", items_, " items made, done ",
                        core_.done_seq(), " of ", core_.last_seq(), ", ", awaited_.size(),
                        " values and ", saves_.size(), " checkpoints awaited, state ",
                        static_cast<int>(core_.state()));
  }

  // ---- faults
  void Cut() {
    world_->ExecutorTrace("client ", number_, ": its connection breaks");
    if (connection_ != nullptr) connection_->Break();
  }
  void Stall() {
    world_->ExecutorTrace("client ", number_, ": its connection stalls");
    if (connection_ != nullptr) connection_->Stall(world_->Between(1, 20) * kSecond);
  }
  // The program stands still, as if its machine slept.
  void GoAway() {
    world_->ExecutorTrace("client ", number_, " goes away");
    back_at_ = world_->now() + world_->Between(2, 20) * kSecond;
    if (connection_ != nullptr) connection_->Break();
  }
  // Its process ends, and another one enters its session by its name.
  void Die() {
    const session::SessionCore::State state = core_.state();
    if (name_.empty() || done_ || state == session::SessionCore::State::kNew ||
        state == session::SessionCore::State::kClosing)
      return;
    world_->ExecutorTrace("client ", number_, " dies");
    world_->Count("died");
    gateway_->ClientDied(core_.opened().session_id());
    if (connection_ != nullptr) Abandon(world_->Between(0, 5000) * kMs);
    Enter();
  }
  // Its account's operator revokes the key that it has; another process has the next one, maybe
  // some time later.
  void LoseKey() {
    if (name_.empty() || done_) return;
    world_->ExecutorTrace("client ", number_, "'s key is revoked");
    world_->Count("key revoked");
    gateway_->Revoke(Key());
    if (world_->OneIn(2)) back_at_ = world_->now() + world_->Between(5, 20) * kSecond;
  }
  // Abandons a connection that the gateway still considers open, including frames in flight.
  void DialAgain() {
    if (connection_ == nullptr || !core_.can_resume()) return;
    world_->ExecutorTrace("client ", number_, ": dials again");
    Abandon(world_->Between(0, 5000) * kMs);
    Lost();
  }
  // The same, with the key that its account's operator has given it meanwhile.
  void ChangeKey(std::optional<int64_t> cap_ms) {
    if (!HasSession()) return;
    world_->Count("resumed with another key");
    key_ = NewKey(cap_ms);
    DialAgain();
  }
  // Another process wants its session, and has `cap_ms` to spend.
  void Contest(RivalKey kind, int64_t cap_ms) {
    if (!HasSession() || rival_ != nullptr || !gateway_->up()) return;
    world_->ExecutorTrace("client ", number_, "'s session is wanted by another key");
    had_rival_ = true;
    rival_ = std::make_unique<Rival>(
        kind, NewKey(kind == RivalKey::kCapped ? std::optional(cap_ms) : std::nullopt));
    rival_->core.Attach(name_);
    rival_->core.Open(0);
    rival_->connection = std::make_shared<ClientConnection>(world_);
    Listen(rival_->connection);
    const int64_t account =
        kind == RivalKey::kOfAnotherAccount ? Account() % Books::kAccounts + 1 : Account();
    gateway_->Accept(rival_->connection, KeyOf(account, rival_->key));
    for (proto::ClientFrame& frame : rival_->core.TakeFrames())
      rival_->connection->SendUp(std::move(frame));
  }

 private:
  struct Save {
    uint64_t seq;
    std::string name;
    std::map<std::string, std::string> values;
  };
  struct Contents {
    Value value;
    std::map<uint32_t, Value> of_ranks;  // of several
  };
  struct KeptName {
    uint64_t id;
    std::string name;
    Contents contents;
  };
  struct Awaited {
    uint64_t seq;
    uint32_t index;
    Value value;
  };

  int64_t Account() const { return 1 + number_ % Books::kAccounts; }
  bool IsOfMoney(const absl::Status& why) const {
    return gateway_->books().IsOfMoney(Account(), why);
  }
  // K4: a client is told that a limit is met only where it is, and no other than that.
  static const char* LimitNotMet(const absl::Status& why) {
    return Books::NamesALimit(why) ? "K4: told of a limit that is not met: " : "";
  }
  std::string KeyOf(int64_t account, int key) const {
    return name_.empty() ? absl::StrCat(account) : absl::StrCat(account, ":", number_, ".", key);
  }
  std::string Key() const { return KeyOf(Account(), key_); }
  int NewKey(std::optional<int64_t> cap_ms) {
    ++last_key_;
    if (cap_ms.has_value()) gateway_->books().SetKeyCap(KeyOf(Account(), last_key_), *cap_ms);
    return last_key_;
  }
  // Known to it by a name, and open.
  bool HasSession() const {
    return !name_.empty() && !done_ && !entering_ && connection_ != nullptr &&
           core_.state() == session::SessionCore::State::kOpen;
  }
  // Lets go of a connection, which breaks some time later.
  void Abandon(int64_t after_ns) {
    connection_->dialler.open = false;
    const std::shared_ptr<ClientConnection> old = std::exchange(connection_, nullptr);
    world_->After(after_ns, [old] { old->Break(); });
  }

  void OnRivalMessage(ToClient message) {
    for (const proto::ServerItem& item : message.frame.items())
      if (item.has_opened()) return TakenOver(std::move(message));
    if (!message.end) return;
    const auto session = gateway::SessionId::FromBytes(core_.opened().session_id());
    if (session.has_value()) {
      const std::string wrong =
          rival_->CheckRefusal(*message.end, Account(), KeyIdOf(KeyOf(Account(), rival_->key)),
                               *session, *gateway_);
      if (!wrong.empty())
        world_->Broken("client ", number_, ": ", wrong, ": ", message.end->ToString());
    }
    if (rival_->kind == RivalKey::kOfAnotherAccount) world_->Count("a stranger was refused");
    if (IsOfMoney(*message.end)) world_->Count("takeover refused");
    LoseRival();
  }
  void LoseRival() {
    rival_->connection->dialler.open = false;
    world_->After(0, [old = rival_->connection] { old->Break(); });
    rival_.reset();
  }
  // The process that wanted the session has it, and is the program from now on.
  void TakenOver(ToClient message) {
    if (rival_->kind == RivalKey::kOfAnotherAccount)
      world_->Broken("K5: client ", number_, "'s session is entered by a stranger");
    if (done_) return LoseRival();  // it had all its values, and has closed the session
    world_->ExecutorTrace("client ", number_, "'s session is taken over");
    world_->Count("taken over");
    if (connection_ != nullptr) Abandon(0);
    Forget();
    core_ = std::move(rival_->core);
    connection_ = std::move(rival_->connection);
    key_ = rival_->key;
    rival_.reset();
    OnMessage(std::move(message));
  }

  // In place of the process before, of which nothing is left but what the session has.
  void Enter() {
    Forget();
    core_ = session::SessionCore();
    core_.Attach(name_);
    core_.Open(0);
    world_->After(world_->Between(50, 3000) * kMs, [this] { Dial(); });
  }
  void Forget() {
    awaited_.clear();
    saves_.clear();
    values_.clear();
    for (auto& [rank, values] : of_ranks_) values.clear();
    kept_.clear();
    entering_ = true;
  }
  // There is none yet.
  void BeginAnew() {
    if (has_opened_)
      return world_->Broken("client ", number_, "'s session with a name cannot be found");
    history_.clear();
    entering_ = false;
    core_ = session::SessionCore();
    core_.Name(name_);
    core_.Open(devices_);
    world_->After(world_->Between(50, 1000) * kMs, [this] { Dial(); });
  }
  // Another process has a session that the one before could not go on with, or did not get.
  bool EntersAgain(const absl::Status& why) {
    if (name_.empty() || why.ok()) return false;
    const bool no_money = IsOfMoney(why);
    const bool exists = absl::IsAlreadyExists(why), none = absl::IsNotFound(why) && entering_;
    const bool revoked = absl::IsUnauthenticated(why);
    // By the process that wanted it, or this one's token is void since.
    const bool taken = had_rival_ && (absl::IsAborted(why) || absl::IsNotFound(why));
    if (!absl::IsUnavailable(why) && !no_money && !exists && !none && !revoked && !taken)
      return false;
    if (revoked || (no_money && gateway_->books().HasCap(Key()))) key_ = NewKey(std::nullopt);
    if (connection_ != nullptr) Abandon(0);
    none ? BeginAnew() : Enter();
    return true;
  }
  void OnEntered() {
    entering_ = false;
    world_->Count("entered");
    const uint64_t applied = core_.done_seq();
    std::erase_if(history_, [&](const auto& entry) { return entry.first > applied; });
    if (devices_ > 1) world_->Count("group entered");
    std::map<std::string, Contents> expected;
    if (!history_.empty()) expected = history_.back().second;
    next_handle_ = core_.first_handle();
    std::vector<uint64_t> handles;
    for (const session::KeptArray& array : core_.TakeKept()) {
      const auto value = expected.extract(array.name);
      if (!array.status.ok() || value.empty())
        return world_->Broken("client ", number_, ": ", array.name, " is kept, at item ", applied,
                              ": ", array.status.ToString());
      // Two names may have one array; the program has it once.
      if (values_.emplace(array.handle, value.mapped().value).second)
        handles.push_back(array.handle);
      for (const auto& [rank, bytes] : value.mapped().of_ranks)
        of_ranks_[rank][array.handle] = bytes;
    }
    if (!expected.empty())
      return world_->Broken("client ", number_, ": ", expected.begin()->first,
                            " is kept no more, at item ", applied);
    if (handles.empty()) return;
    world_->Count("found what was kept");
    const absl::StatusOr<uint64_t> seq = core_.Fetch(handles);
    for (uint32_t i = 0; seq.ok() && i < handles.size(); ++i)
      awaited_.push_back({*seq, i, values_.at(handles[i])});
  }

  void Dial() {
    if (done_ || connection_ != nullptr) return;
    if (world_->now() < back_at_) {
      world_->After(back_at_ - world_->now(), [this] { Dial(); });
      return;
    }
    if (!gateway_->up()) {
      world_->After(300 * kMs, [this] { Dial(); });
      return;
    }
    const session::SessionCore::State state = core_.state();
    if (state == session::SessionCore::State::kStopped) world_->Count("resumed after a stop");
    if (state == session::SessionCore::State::kLost ||
        state == session::SessionCore::State::kStopped)
      core_.Resume();
    connection_ = std::make_shared<ClientConnection>(world_);
    Listen(connection_);
    gateway_->Accept(connection_, Key());
    Flush();
  }
  void Listen(const std::shared_ptr<ClientConnection>& to) {
    const auto is_rivals = [this, connection = to.get()] {
      return rival_ != nullptr && rival_->connection.get() == connection;
    };
    to->dialler.on_message = [this, is_rivals](ToClient message) {
      is_rivals() ? OnRivalMessage(std::move(message)) : OnMessage(std::move(message));
    };
    to->dialler.on_lost = [this, is_rivals, connection = to.get()] {
      if (is_rivals()) rival_.reset();
      if (connection_.get() != connection) return;
      connection_.reset();
      Lost();
    };
  }
  void Lost() {
    if (done_) return;
    if (core_.state() == session::SessionCore::State::kClosing) {
      done_ = true;  // it has all its values
      return;
    }
    core_.OnLinkLost();
    world_->After(world_->Between(50, 1000) * kMs, [this] { Dial(); });
  }

  void OnMessage(ToClient message) {
    core_.Advance(session::SendWindow::Time(world_->now()));
    // Of a session that never began, whose Opened was lost, or that has nothing more to do: the
    // core takes it for the end.
    for (const proto::ServerItem& item : message.frame.items())
      if (item.has_failed() && item.failed().seq() == 0 &&
          IsOfMoney({static_cast<absl::StatusCode>(item.failed().code()),
                     item.failed().message()}) &&
          (!item.failed().state_is_kept() || (name_.empty() && !core_.can_resume()) ||
           core_.state() == session::SessionCore::State::kClosing))
        return;
    for (const proto::ServerItem& item : message.frame.items())
      if (item.notice().kind() == proto::Notice::DEVICE_RELEASED) world_->Count("slept");
    core_.OnFrame(message.frame);
    if (core_.state() == session::SessionCore::State::kOpen) has_opened_ = true;
    if (message.end) {
      const bool closes = core_.state() == session::SessionCore::State::kClosing;
      const bool stops = core_.state() == session::SessionCore::State::kStopped;
      if (!closes && !stops && EntersAgain(*message.end)) return;
      if (!message.end->ok() && message.end->code() == absl::StatusCode::kAborted) return;
      // Without credit: its state is kept, and it comes back when the operator may have given some.
      if (IsOfMoney(*message.end)) {
        world_->Count("stopped");
        if (gateway_->books().HasCap(Key())) key_ = NewKey(std::nullopt);
        connection_.reset();
        return Lost();
      }
      const bool left = closes && absl::IsUnauthenticated(*message.end);  // it has all its values
      if (!left && (!closes || !message.end->ok()))
        world_->Broken(LimitNotMet(*message.end), "client ", number_,
                       "'s session ends: ", message.end->ToString());
      core_.End(*message.end);
      done_ = true;
      return;
    }
    if (core_.state() == session::SessionCore::State::kEnded) {
      if (EntersAgain(core_.status())) return;
      world_->Broken(LimitNotMet(core_.status()), "client ", number_,
                     " ends its session: ", core_.status().ToString());
      done_ = true;
      return;
    }
    if (entering_ && core_.state() == session::SessionCore::State::kOpen && !core_.awaits_kept())
      OnEntered();
    Collect();
    Flush();
  }

  void Flush() {
    if (connection_ == nullptr) return;
    const std::string& session = core_.opened().session_id();  // empty before it is open
    if (!session.empty())
      for (const auto& [rank, value] : std::exchange(expected_, {}))
        gateway_->expected().Add(session, rank, value);
    for (proto::ClientFrame& frame : core_.TakeFrames()) connection_->SendUp(std::move(frame));
  }

  // S1, S2, S3: each value once, as in a world without faults.
  void Collect() {
    std::erase_if(awaited_, [&](const Awaited& awaited) {
      if (!core_.Ready(awaited.seq, awaited.index)) return false;
      const absl::StatusOr<HostTensor> value = core_.Take(awaited.seq, awaited.index);
      if (!value.ok())
        world_->Broken("client ", number_, ": item ", awaited.seq,
                       " fails: ", value.status().ToString());
      else if (value->bytes != awaited.value.bytes())
        world_->Broken("client ", number_, ": item ", awaited.seq, " has another value");
      return true;
    });
    std::erase_if(saves_, [&](const Save& save) {
      if (!core_.SavedReady(save.seq)) return false;
      const absl::StatusOr<session::Saved> saved = core_.TakeSaved(save.seq);
      if (saved.ok()) {
        world_->Count("saved");
        if (gateway_->Checkpoint(save.name) != save.values)
          world_->Broken("client ", number_, ": checkpoint ", save.name, " holds something else");
      } else if (!absl::IsUnavailable(saved.status())) {  // may be retried
        world_->Broken("client ", number_, ": ", saved.status().ToString());
      }
      return true;
    });
    if (const absl::Status failure = core_.TakeFirstFailure();
        !failure.ok() && !absl::IsUnavailable(failure))
      world_->Broken("client ", number_, ": ", failure.ToString());
    if (entering_ || made_ < items_ || !awaited_.empty() || !saves_.empty() ||
        core_.done_seq() < core_.last_seq())
      return;
    if (core_.state() != session::SessionCore::State::kOpen) return;
    if (devices_ > 1) world_->Count("group ends in order");
    core_.Close();
  }

  void Pace() {
    if (done_) return;
    core_.Advance(session::SendWindow::Time(world_->now()));
    for (int64_t burst = world_->Between(0, 5); burst > 0 && made_ < items_; --burst) Make();
    Collect();
    Flush();
    world_->After(world_->Between(20, 500) * kMs, [this] { Pace(); });
  }

  uint64_t Some() {
    auto it = values_.begin();
    std::advance(it, world_->Draw() % values_.size());
    return it->first;
  }

  // Some arrays, by names.
  void KeepSome() {
    kept_.clear();
    std::vector<session::KeepEntry> entries;
    for (const char* const name : {"a", "b", "c"}) {
      const uint64_t handle = Some();
      entries.push_back({name, ++last_kept_id_, handle});
      kept_.push_back({last_kept_id_, name, ContentsOf(handle)});
    }
    const absl::StatusOr<uint64_t> seq = core_.Keep(entries);
    if (!seq.ok()) return world_->Broken("client ", number_, ": ", seq.status().ToString());
    NoteKept(*seq);
  }
  Contents ContentsOf(uint64_t handle) const {
    Contents contents{values_.at(handle), {}};
    for (const auto& [rank, values] : of_ranks_) contents.of_ranks[rank] = values.at(handle);
    return contents;
  }
  void NoteKept(uint64_t seq) {
    std::map<std::string, Contents> values;
    for (const KeptName& kept : kept_) values[kept.name] = kept.contents;
    history_.emplace_back(seq, std::move(values));
  }

  void Make() {
    if (entering_ || !core_.HasWindow(kLargeBytes)) return;
    if (!name_.empty() && values_.size() > 2 && core_.opened().keeps() && world_->OneIn(6))
      return KeepSome();
    if (++made_ == items_) return FetchAll();
    const uint64_t kind = values_.size() < 3 ? 0 : world_->Draw() % 8;
    if (kind == 0) {
      const uint64_t number = world_->Draw();
      auto bytes = std::make_shared<std::string>(reinterpret_cast<const char*>(&number), 8);
      if (world_->OneIn(40)) bytes->resize(kLargeBytes, 'x');
      const int64_t dims[] = {static_cast<int64_t>(bytes->size()) / 4};
      core_.Put(next_handle_, static_cast<uint32_t>(DType::kF32), dims, bytes);
      const Value value{std::shared_ptr<const std::string>(std::move(bytes))};
      for (auto& [rank, values] : of_ranks_) values[next_handle_] = value;
      values_[next_handle_++] = value;
    } else if (kind == 1) {
      const uint64_t handle = Some();
      core_.Release(handle);
      values_.erase(handle);
    } else if (kind == 2) {
      const uint64_t handle = Some();
      const absl::StatusOr<uint64_t> seq = core_.Fetch({&handle, 1});
      if (seq.ok()) awaited_.push_back({*seq, 0, values_.at(handle)});
    } else if (kind == 3 && core_.opened().protocol() > 0 && world_->OneIn(3)) {
      SaveSome();
    } else {
      Run(world_->Draw() % graphs_.size());
    }
  }

  void SaveSome() {
    const std::string name = absl::StrCat("of client ", number_, " at ", made_);
    const uint64_t handle = Some();
    const session::SaveEntry entries[] = {{"weight", handle}};
    const absl::StatusOr<uint64_t> seq = core_.Save(name, entries);
    if (!seq.ok()) return world_->Broken("client ", number_, ": ", seq.status().ToString());
    saves_.push_back({*seq, name, {{"weight", values_.at(handle).bytes()}}});
  }

  void Run(size_t which) {
    const EncodedGraph& graph = graphs_[which];
    session::RunRequest request;
    request.graph_id = graph.id.bytes;
    request.graph = std::make_shared<std::string>(graph.bytes);
    request.inputs = {Some(), Some()};
    const uint64_t inputs[] = {values_.at(request.inputs[0]).hash(),
                               values_.at(request.inputs[1]).hash()};
    std::vector<std::string> results;
    for (uint32_t i = 0; i < 2 - which; ++i) {
      results.push_back(ValueOf(graph.id.ToBytes(), i, inputs));
      request.outputs.push_back(next_handle_ + i);
      if (world_->OneIn(3)) request.fetch.push_back(i);
    }
    if (world_->OneIn(2)) request.donate = {0};
    const bool rekeeps = !kept_.empty() && world_->OneIn(2);
    KeptName* rekept = nullptr;
    if (rekeeps) {
      rekept = &kept_[world_->Draw() % kept_.size()];
      request.rekept = {{rekept->id, 0}};
    }
    const absl::StatusOr<uint64_t> seq = core_.Run(request);
    if (!seq.ok()) return world_->Broken("client ", number_, ": ", seq.status().ToString());
    for (const uint32_t i : request.fetch) awaited_.push_back({*seq, i, results[i]});
    ExpectOfRanks(graph, request);
    if (!request.donate.empty()) values_.erase(request.inputs[0]);
    for (const std::string& result : results) values_[next_handle_++] = result;
    if (rekept == nullptr) return;
    rekept->contents = ContentsOf(request.outputs[0]);
    NoteKept(*seq);
  }

  // What ranks hold beside the first comes to nobody, until a later result shows it.
  void ExpectOfRanks(const EncodedGraph& graph, const session::RunRequest& request) {
    for (uint32_t rank = 0; rank < devices_ && devices_ > 1; ++rank) {
      std::map<uint64_t, Value>& values = of_ranks_[rank];
      const uint64_t inputs[] = {values.at(request.inputs[0]).hash(),
                                 values.at(request.inputs[1]).hash()};
      std::vector<std::string> results;
      for (uint32_t i = 0; i < request.outputs.size(); ++i) {
        results.push_back(ValueOf(graph.id.ToBytes(), i, inputs, rank));
        expected_.emplace_back(rank, results.back());
      }
      for (size_t i = 0; i < results.size(); ++i) values[request.outputs[i]] = results[i];
    }
  }

  // The final state is the result of all items together.
  void FetchAll() {
    std::vector<uint64_t> handles;
    for (const auto& [handle, value] : values_) handles.push_back(handle);
    const absl::StatusOr<uint64_t> seq = core_.Fetch(handles);
    if (!seq.ok()) return world_->Broken("client ", number_, ": ", seq.status().ToString());
    for (uint32_t i = 0; i < handles.size(); ++i)
      awaited_.push_back({*seq, i, values_.at(handles[i])});
  }

  // For a Put that is sent, and fetched, in several pieces.
  static constexpr size_t kLargeBytes = wire::kPieceBytesMax + 4096;

  World* const world_;
  Gateway* const gateway_;
  const int number_;
  const int items_;
  const uint32_t devices_;
  const std::string name_;  // empty: none
  session::SessionCore core_;
  std::shared_ptr<ClientConnection> connection_;
  int64_t back_at_ = 0;  // after it went away
  std::vector<EncodedGraph> graphs_;
  int made_ = 0;
  uint64_t next_handle_ = 1;
  std::map<uint64_t, Value> values_;  // the expected contents of the handles
  std::map<uint32_t, std::map<uint64_t, Value>> of_ranks_;  // by rank, also of ended handles
  std::vector<std::pair<uint32_t, std::string>> expected_;  // by ranks, and not sent
  std::vector<Awaited> awaited_;
  std::vector<Save> saves_;
  std::vector<KeptName> kept_;  // by this process
  uint64_t last_kept_id_ = 0;
  // What is kept since which item.
  std::vector<std::pair<uint64_t, std::map<std::string, Contents>>> history_;
  bool entering_ = false, has_opened_ = false;
  int key_ = 0, last_key_ = 0;  // that it has, and that was made
  std::unique_ptr<Rival> rival_;
  bool had_rival_ = false;
  bool done_ = false;
};

}  // namespace outboard::sim
