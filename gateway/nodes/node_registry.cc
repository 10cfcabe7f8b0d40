#include "gateway/nodes/node_registry.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "gateway/accounts/one_time_secret.h"
#include "gateway/base/node_serial.h"
#include "gateway/doors/address_key.h"
#include "gateway/nodes/node_words.h"

namespace outboard::gateway {
namespace {

using storage::Database;
using storage::Statement;

constexpr const char* kSchema[] = {
    // A node with a key has enrolled. One that waits has no row in `node` for that key.
    R"sql(
CREATE TABLE node(
  serial TEXT PRIMARY KEY,
  expected INTEGER NOT NULL CHECK(expected IN (0, 1)),
  key_id TEXT NOT NULL,
  facts BLOB NOT NULL,
  address TEXT NOT NULL,
  since_ms INTEGER NOT NULL,
  asked_ms INTEGER NOT NULL
) STRICT;
CREATE TABLE node_waiting(
  serial TEXT NOT NULL,
  key_id TEXT NOT NULL,
  facts BLOB NOT NULL,
  address TEXT NOT NULL,
  since_ms INTEGER NOT NULL,
  asked_ms INTEGER NOT NULL,
  approved_ms INTEGER,
  PRIMARY KEY(serial, key_id)
) STRICT;
CREATE TABLE node_claim(
  hash BLOB PRIMARY KEY CHECK(length(hash) = 32),
  serial TEXT NOT NULL,
  expires_ms INTEGER NOT NULL,
  used_by TEXT
) STRICT;
CREATE INDEX node_claim_by_serial ON node_claim(serial);
CREATE TABLE node_offer(
  serial TEXT PRIMARY KEY,
  until_ms INTEGER NOT NULL
) STRICT;
)sql",
};

constexpr std::string_view kPrefix = "ob_claim_";
constexpr int64_t kDayMs = 86'400'000;
constexpr size_t kTextBytesMax = 128;
constexpr size_t kAddressBytesMax = 128;

absl::Status Refused(const char* word, const char* why) {
  return absl::PermissionDeniedError(
      absl::StrCat(word, ": ", why, "; make one with `outboard node claim --serial SERIAL`"));
}

// Of columns: serial, key_id, facts, address, since_ms, asked_ms.
NodeRow RowOf(const Statement& row) {
  NodeRow node{.serial = std::string(row.Text(0)),
               .key_id = std::string(row.Text(1)),
               .address = std::string(row.Text(3)),
               .since = WallTime{row.Int(4)},
               .asked = WallTime{row.Int(5)}};
  const std::string_view facts = row.Blob(2);
  // A damaged file: nothing is known of it, then.
  if (!node.facts.ParseFromArray(facts.data(), static_cast<int>(facts.size()))) node.facts.Clear();
  return node;
}

absl::Status Run(Database& db, std::string_view sql, std::string_view text, int64_t number) {
  OB_ASSIGN_OR_RETURN(Statement statement, db.Prepare(sql));
  return statement.BindText(1, text).Bind(2, number).Run();
}

absl::Status Run(Database& db, std::string_view sql, int64_t number) {
  OB_ASSIGN_OR_RETURN(Statement statement, db.Prepare(sql));
  return statement.Bind(1, number).Run();
}

// Whether one more may wait. Who waits already does.
absl::Status CheckRoomToWait(Database& db, const NodeRow& node) {
  const AddressKey address = AddressKeyOfPeer(node.address);
  OB_ASSIGN_OR_RETURN(Statement all,
                      db.Prepare("SELECT serial, key_id, address FROM node_waiting"));
  int64_t count = 0, of_address = 0;
  for (;;) {
    OB_ASSIGN_OR_RETURN(const bool more, all.Step());
    if (!more) break;
    if (all.Text(0) == node.serial && all.Text(1) == node.key_id) return absl::OkStatus();
    ++count;
    of_address += AddressKeyOfPeer(all.Text(2)) == address;
  }
  if (of_address >= kNodesWaitingPerAddressMax)
    return absl::ResourceExhaustedError(
        absl::StrCat(kTooManyWait, ": ", of_address, " nodes of this address wait to be let in; "
                     "limit ", kNodesWaitingPerAddressMax));
  if (count >= kNodesWaitingMax)
    return absl::ResourceExhaustedError(absl::StrCat(
        kTooManyWait, ": ", count, " nodes wait to be let in; limit ", kNodesWaitingMax));
  return absl::OkStatus();
}

}  // namespace

const char* ToString(NodeState state) {
  switch (state) {
    case NodeState::kExpected: return "expected";
    case NodeState::kWaiting: return "waiting";
    case NodeState::kApproved: return "approved";
    case NodeState::kEnrolled: return "enrolled";
  }
  return "";
}

absl::Status CheckNodeFacts(const proto::NodeFacts& facts) {
  OB_RETURN_IF_ERROR(CheckNodeSerial(facts.serial()));
  if (facts.ByteSizeLong() > kNodeFactsBytesMax)
    return absl::InvalidArgumentError(absl::StrCat("the node's facts have ", facts.ByteSizeLong(),
                                                   " bytes; limit ", kNodeFactsBytesMax));
  if (facts.mac_size() > kNodeListsMax || facts.devices_size() > kNodeListsMax)
    return absl::InvalidArgumentError(absl::StrCat("the node has ", facts.mac_size(),
                                                   " addresses and ", facts.devices_size(),
                                                   " devices; limit ", kNodeListsMax, " of each"));
  const auto is_good = [](const std::string& text) {
    return text.size() <= kTextBytesMax &&
           std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
  };
  if (is_good(facts.uuid()) && is_good(facts.image()) && is_good(facts.kernel()) &&
      std::all_of(facts.mac().begin(), facts.mac().end(), is_good) &&
      std::all_of(facts.devices().begin(), facts.devices().end(), is_good))
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the node's facts: each text is printable and has at most ", kTextBytesMax, " bytes"));
}

absl::StatusOr<std::unique_ptr<NodeRegistry>> NodeRegistry::Open(
    const std::string& path, const storage::OpenOptions& options) {
  OB_ASSIGN_OR_RETURN(std::unique_ptr<Database> db,
                      Database::OpenFor("nodes", kSchema, path, options));
  return std::unique_ptr<NodeRegistry>(new NodeRegistry(std::move(db)));
}

absl::StatusOr<Secret> NodeRegistry::MakeClaim(std::string_view serial, WallTime now) {
  OB_RETURN_IF_ERROR(CheckNodeSerial(serial));
  OB_ASSIGN_OR_RETURN(Secret claim, MakeOneTimeSecret(kPrefix));
  absl::MutexLock lock(&mutex_);
  OB_RETURN_IF_ERROR(db_->Transaction(Database::Mode::kWrite, [&]() -> absl::Status {
    OB_RETURN_IF_ERROR(
        Run(*db_, "DELETE FROM node_claim WHERE expires_ms <= ?", now.unix_ms - kDayMs));
    OB_ASSIGN_OR_RETURN(
        Statement replace,
        db_->Prepare("DELETE FROM node_claim WHERE serial = ? AND used_by IS NULL"));
    OB_RETURN_IF_ERROR(replace.BindText(1, serial).Run());
    OB_ASSIGN_OR_RETURN(
        Statement write,
        db_->Prepare("INSERT INTO node_claim(hash, serial, expires_ms) VALUES(?, ?, ?)"));
    return write.BindBlob(1, HashOfSecret(claim.Reveal()))
        .BindText(2, serial)
        .Bind(3, now.unix_ms + kClaimLifeMs)
        .Run();
  }));
  return claim;
}

absl::Status NodeRegistry::OfferClaim(std::string_view serial, WallTime now) {
  OB_RETURN_IF_ERROR(CheckNodeSerial(serial));
  absl::MutexLock lock(&mutex_);
  return db_->Transaction(Database::Mode::kWrite, [&]() -> absl::Status {
    OB_RETURN_IF_ERROR(Run(*db_, "DELETE FROM node_offer WHERE until_ms <= ?", now.unix_ms));
    return Run(*db_,
               "INSERT INTO node_offer(serial, until_ms) VALUES(?, ?) ON CONFLICT(serial) DO "
               "UPDATE SET until_ms = excluded.until_ms",
               serial, now.unix_ms + kClaimLifeMs);
  });
}

absl::StatusOr<bool> NodeRegistry::TakeOffer(std::string_view serial, WallTime now) {
  OB_RETURN_IF_ERROR(CheckNodeSerial(serial));
  absl::MutexLock lock(&mutex_);
  bool taken = false;
  OB_RETURN_IF_ERROR(db_->Transaction(Database::Mode::kWrite, [&]() -> absl::Status {
    OB_ASSIGN_OR_RETURN(Statement take, db_->Prepare("DELETE FROM node_offer WHERE serial = ? AND "
                                                     "until_ms > ? RETURNING 1"));
    take.BindText(1, serial).Bind(2, now.unix_ms);
    OB_ASSIGN_OR_RETURN(taken, take.Step());
    return taken ? take.Step().status() : absl::OkStatus();  // to its end, so that it counts
  }));
  return taken;
}

absl::Status NodeRegistry::Expect(std::string_view serial, WallTime now) {
  OB_RETURN_IF_ERROR(CheckNodeSerial(serial));
  absl::MutexLock lock(&mutex_);
  return Run(*db_,
             "INSERT INTO node(serial, expected, key_id, facts, address, since_ms, asked_ms) "
             "VALUES(?, 1, '', x'', '', ?, 0) ON CONFLICT(serial) DO UPDATE SET expected = 1",
             serial, now.unix_ms);
}

absl::Status NodeRegistry::Approve(std::string_view serial, std::string_view key, WallTime now) {
  OB_RETURN_IF_ERROR(CheckNodeSerial(serial));
  absl::MutexLock lock(&mutex_);
  return db_->Transaction(Database::Mode::kWrite, [&]() -> absl::Status {
    OB_ASSIGN_OR_RETURN(Statement find,
                        db_->Prepare("SELECT key_id FROM node_waiting WHERE serial = ?"));
    find.BindText(1, serial);
    std::vector<std::string> keys;
    for (;;) {
      OB_ASSIGN_OR_RETURN(const bool more, find.Step());
      if (!more) break;
      if (find.Text(0).starts_with(key)) keys.emplace_back(find.Text(0));
    }
    if (keys.empty())
      return absl::NotFoundError(
          "no node waits under that serial number and key; `outboard node ls` lists them");
    if (keys.size() > 1) {
      std::string all;
      for (const std::string& one : keys) absl::StrAppend(&all, all.empty() ? "" : ", ", one);
      return absl::FailedPreconditionError(absl::StrCat(
          keys.size(), " machines say that they have this serial number, with the keys ", all,
          ": say which by --key"));
    }
    OB_ASSIGN_OR_RETURN(Statement write,
                        db_->Prepare("UPDATE node_waiting SET approved_ms = ? WHERE serial = ? AND "
                                     "key_id = ?"));
    return write.Bind(1, now.unix_ms).BindText(2, serial).BindText(3, keys.front()).Run();
  });
}

absl::StatusOr<std::vector<NodeRow>> NodeRegistry::List() {
  absl::MutexLock lock(&mutex_);
  std::vector<NodeRow> all;
  OB_RETURN_IF_ERROR(db_->Transaction(Database::Mode::kRead, [&]() -> absl::Status {
    OB_ASSIGN_OR_RETURN(
        Statement nodes,
        db_->Prepare("SELECT serial, key_id, facts, address, since_ms, asked_ms FROM node"));
    for (;;) {
      OB_ASSIGN_OR_RETURN(const bool more, nodes.Step());
      if (!more) break;
      all.push_back(RowOf(nodes));
      all.back().state = all.back().key_id.empty() ? NodeState::kExpected : NodeState::kEnrolled;
    }
    OB_ASSIGN_OR_RETURN(Statement waiting,
                        db_->Prepare("SELECT serial, key_id, facts, address, since_ms, asked_ms, "
                                     "approved_ms FROM node_waiting"));
    for (;;) {
      OB_ASSIGN_OR_RETURN(const bool more, waiting.Step());
      if (!more) return absl::OkStatus();
      all.push_back(RowOf(waiting));
      all.back().state = waiting.IsNull(6) ? NodeState::kWaiting : NodeState::kApproved;
    }
  }));
  std::sort(all.begin(), all.end(), [](const NodeRow& a, const NodeRow& b) {
    return std::tie(a.serial, a.state, a.key_id) < std::tie(b.serial, b.state, b.key_id);
  });
  return all;
}

absl::Status NodeRegistry::Remove(std::string_view serial) {
  absl::MutexLock lock(&mutex_);
  bool found = false;
  OB_RETURN_IF_ERROR(db_->Transaction(Database::Mode::kWrite, [&]() -> absl::Status {
    for (const char* const sql : {"DELETE FROM node WHERE serial = ? RETURNING 1",
                                  "DELETE FROM node_waiting WHERE serial = ? RETURNING 1",
                                  "DELETE FROM node_claim WHERE serial = ? RETURNING 1",
                                  "DELETE FROM node_offer WHERE serial = ? RETURNING 1"}) {
      OB_ASSIGN_OR_RETURN(Statement remove, db_->Prepare(sql));
      remove.BindText(1, serial);
      for (;;) {
        OB_ASSIGN_OR_RETURN(const bool one, remove.Step());
        if (!one) break;
        found = true;
      }
    }
    return absl::OkStatus();
  }));
  if (found) return absl::OkStatus();
  return absl::NotFoundError("no node of that serial number; `outboard node ls` lists them");
}

absl::Status NodeRegistry::CheckClaim(std::string_view claim, std::string_view serial,
                                      std::string_view key_id, WallTime now) {
  absl::MutexLock lock(&mutex_);
  return CheckClaimLocked(claim, serial, key_id, now);
}

absl::Status NodeRegistry::CheckClaimLocked(std::string_view claim, std::string_view serial,
                                            std::string_view key_id, WallTime now) {
  OB_ASSIGN_OR_RETURN(
      Statement find,
      db_->Prepare("SELECT serial, expires_ms, used_by FROM node_claim WHERE hash = ?"));
  find.BindBlob(1, HashOfSecret(claim));
  OB_ASSIGN_OR_RETURN(const bool found, find.Step());
  if (!found) return Refused(kClaimUnknown, "nobody made this claim, or a newer one replaced it");
  if (find.Text(0) != serial) return Refused(kClaimOtherSerial, "the claim is for another node");
  if (!find.IsNull(2) && find.Text(2) != key_id) return Refused(kClaimUsed, "the claim was used");
  if (find.Int(1) <= now.unix_ms)
    return Refused(kClaimExpired, "the claim was made more than 15 minutes ago");
  return absl::OkStatus();
}

absl::Status NodeRegistry::SpendClaim(std::string_view claim, std::string_view serial,
                                      std::string_view key_id, WallTime now) {
  absl::MutexLock lock(&mutex_);
  return db_->Transaction(Database::Mode::kWrite, [&]() -> absl::Status {
    OB_RETURN_IF_ERROR(CheckClaimLocked(claim, serial, key_id, now));
    OB_ASSIGN_OR_RETURN(Statement spend,
                        db_->Prepare("UPDATE node_claim SET used_by = ? WHERE hash = ?"));
    return spend.BindText(1, key_id).BindBlob(2, HashOfSecret(claim)).Run();
  });
}

absl::StatusOr<NodeRow> NodeRegistry::Find(std::string_view serial) {
  absl::MutexLock lock(&mutex_);
  OB_ASSIGN_OR_RETURN(Statement find,
                      db_->Prepare("SELECT serial, key_id, facts, address, since_ms, asked_ms, "
                                   "expected FROM node WHERE serial = ?"));
  find.BindText(1, serial);
  OB_ASSIGN_OR_RETURN(const bool found, find.Step());
  if (!found) return absl::NotFoundError("no node of that serial number");
  NodeRow node = RowOf(find);
  node.is_expected = find.Int(6) != 0;
  node.state = node.key_id.empty() ? NodeState::kExpected : NodeState::kEnrolled;
  return node;
}

absl::StatusOr<bool> NodeRegistry::IsApproved(std::string_view serial, std::string_view key_id) {
  absl::MutexLock lock(&mutex_);
  OB_ASSIGN_OR_RETURN(Statement find,
                      db_->Prepare("SELECT 1 FROM node_waiting WHERE serial = ? AND key_id = ? AND "
                                   "approved_ms IS NOT NULL"));
  return find.BindText(1, serial).BindText(2, key_id).Step();
}

absl::Status NodeRegistry::NoteWaiting(const NodeRow& node, WallTime now) {
  OB_RETURN_IF_ERROR(CheckNodeFacts(node.facts));
  absl::MutexLock lock(&mutex_);
  return db_->Transaction(Database::Mode::kWrite, [&]() -> absl::Status {
    OB_RETURN_IF_ERROR(
        Run(*db_, "DELETE FROM node_waiting WHERE asked_ms <= ?", now.unix_ms - kDayMs));
    // Of one serial number those stay that asked last, and whoever was approved.
    OB_RETURN_IF_ERROR(Run(*db_,
                           "DELETE FROM node_waiting WHERE rowid IN (SELECT rowid FROM "
                           "node_waiting WHERE serial = ? AND approved_ms IS NULL ORDER BY "
                           "asked_ms DESC LIMIT -1 OFFSET ?)",
                           node.serial, kKeysWaitingPerSerialMax - 1));
    OB_RETURN_IF_ERROR(CheckRoomToWait(*db_, node));
    OB_ASSIGN_OR_RETURN(
        Statement write,
        db_->Prepare("INSERT INTO node_waiting(serial, key_id, facts, address, since_ms, asked_ms) "
                     "VALUES(?, ?, ?, ?, ?, ?) ON CONFLICT(serial, key_id) DO UPDATE SET facts = "
                     "excluded.facts, address = excluded.address, asked_ms = excluded.asked_ms"));
    return write.BindText(1, node.serial)
        .BindText(2, node.key_id)
        .BindBlob(3, node.facts.SerializeAsString())
        .BindText(4, std::string_view(node.address).substr(0, kAddressBytesMax))
        .Bind(5, now.unix_ms)
        .Bind(6, now.unix_ms)
        .Run();
  });
}

absl::Status NodeRegistry::Enrolled(const NodeRow& node, WallTime now) {
  OB_RETURN_IF_ERROR(CheckNodeFacts(node.facts));
  absl::MutexLock lock(&mutex_);
  return db_->Transaction(Database::Mode::kWrite, [&]() -> absl::Status {
    OB_ASSIGN_OR_RETURN(
        Statement write,
        db_->Prepare("INSERT INTO node(serial, expected, key_id, facts, address, since_ms, "
                     "asked_ms) VALUES(?, 0, ?, ?, ?, ?, ?) ON CONFLICT(serial) DO UPDATE SET "
                     "expected = 0, key_id = excluded.key_id, facts = excluded.facts, address = "
                     "excluded.address, since_ms = excluded.since_ms, asked_ms = "
                     "excluded.asked_ms"));
    OB_RETURN_IF_ERROR(write.BindText(1, node.serial)
                           .BindText(2, node.key_id)
                           .BindBlob(3, node.facts.SerializeAsString())
                           .BindText(4, std::string_view(node.address).substr(0, kAddressBytesMax))
                           .Bind(5, now.unix_ms)
                           .Bind(6, now.unix_ms)
                           .Run());
    // It waits no longer, and neither does what it left there at an earlier boot.
    OB_ASSIGN_OR_RETURN(Statement forget,
                        db_->Prepare("DELETE FROM node_waiting WHERE serial = ? AND (key_id = ? OR "
                                     "address = ?)"));
    return forget.BindText(1, node.serial)
        .BindText(2, node.key_id)
        .BindText(3, std::string_view(node.address).substr(0, kAddressBytesMax))
        .Run();
  });
}

}  // namespace outboard::gateway
