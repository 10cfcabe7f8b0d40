#include "gateway/nodes/node_orders.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "gateway/base/node_serial.h"

namespace outboard::gateway {
namespace {

using storage::Database;
using storage::Statement;

constexpr const char* kSchema[] = {
    R"sql(
CREATE TABLE node_order(
  serial TEXT PRIMARY KEY,
  what INTEGER NOT NULL CHECK(what BETWEEN 0 AND 2),
  why TEXT NOT NULL,
  asked_ms INTEGER NOT NULL
) STRICT;
CREATE TABLE node_test(
  serial TEXT PRIMARY KEY,
  passed INTEGER NOT NULL CHECK(passed IN (0, 1)),
  why TEXT NOT NULL,
  image TEXT NOT NULL,
  at_ms INTEGER NOT NULL
) STRICT;
)sql",
};

constexpr size_t kWhyBytesMax = 512;

}  // namespace

const char* ToString(NodeOrder order) {
  switch (order) {
    case NodeOrder::kDrain: return "drain";
    case NodeOrder::kRestart: return "restart";
    case NodeOrder::kQuarantine: return "quarantine";
  }
  return "";
}

absl::StatusOr<std::unique_ptr<NodeOrders>> NodeOrders::Open(const std::string& path,
                                                             const storage::OpenOptions& options) {
  OB_ASSIGN_OR_RETURN(std::unique_ptr<Database> db,
                      Database::OpenFor("node_orders", kSchema, path, options));
  return std::unique_ptr<NodeOrders>(new NodeOrders(std::move(db)));
}

absl::Status NodeOrders::Ask(const NodeOrderRow& order) {
  OB_RETURN_IF_ERROR(CheckNodeSerial(order.serial));
  const bool printable = std::all_of(order.why.begin(), order.why.end(),
                                     [](char c) { return c >= ' ' && c <= '~'; });
  if (order.why.size() > kWhyBytesMax || !printable)
    return absl::InvalidArgumentError(
        absl::StrCat("a reason is one line of at most ", kWhyBytesMax, " printable bytes"));
  absl::MutexLock lock(&mutex_);
  OB_ASSIGN_OR_RETURN(Statement write,
                      db_->Prepare("INSERT INTO node_order(serial, what, why, asked_ms) "
                                   "VALUES(?, ?, ?, ?) ON CONFLICT(serial) DO UPDATE SET what = "
                                   "excluded.what, why = excluded.why, asked_ms = "
                                   "excluded.asked_ms"));
  return write.BindText(1, order.serial)
      .Bind(2, static_cast<int64_t>(order.order))
      .BindText(3, order.why)
      .Bind(4, order.asked.unix_ms)
      .Run();
}

absl::StatusOr<std::vector<NodeOrderRow>> NodeOrders::Pending(WallTime now) {
  absl::MutexLock lock(&mutex_);
  std::vector<NodeOrderRow> all;
  bool any_old = false;
  {
    OB_ASSIGN_OR_RETURN(Statement query,
                        db_->Prepare("SELECT serial, what, why, asked_ms FROM node_order "
                                     "ORDER BY asked_ms, serial"));
    for (;;) {
      OB_ASSIGN_OR_RETURN(const bool more, query.Step());
      if (!more) break;
      const WallTime asked{query.Int(3)};
      if (now.unix_ms - asked.unix_ms >= kOrderLifeMs) {
        any_old = true;
        continue;
      }
      all.push_back({std::string(query.Text(0)), static_cast<NodeOrder>(query.Int(1)),
                     std::string(query.Text(2)), asked});
    }
  }
  if (any_old) {
    OB_ASSIGN_OR_RETURN(Statement forget,
                        db_->Prepare("DELETE FROM node_order WHERE asked_ms <= ?"));
    OB_RETURN_IF_ERROR(forget.Bind(1, now.unix_ms - kOrderLifeMs).Run());
  }
  return all;
}

absl::Status NodeOrders::Told(const NodeOrderRow& order) {
  absl::MutexLock lock(&mutex_);
  OB_ASSIGN_OR_RETURN(Statement remove,
                      db_->Prepare("DELETE FROM node_order WHERE serial = ? AND asked_ms = ?"));
  return remove.BindText(1, order.serial).Bind(2, order.asked.unix_ms).Run();
}

absl::Status NodeOrders::NoteTest(std::string_view serial, const JoinTest& test) {
  OB_RETURN_IF_ERROR(CheckNodeSerial(serial));
  absl::MutexLock lock(&mutex_);
  OB_ASSIGN_OR_RETURN(Statement write,
                      db_->Prepare("INSERT INTO node_test(serial, passed, why, image, at_ms) "
                                   "VALUES(?, ?, ?, ?, ?) ON CONFLICT(serial) DO UPDATE SET passed "
                                   "= excluded.passed, why = excluded.why, image = excluded.image, "
                                   "at_ms = excluded.at_ms"));
  return write.BindText(1, serial)
      .Bind(2, test.passed ? 1 : 0)
      .BindText(3, std::string_view(test.why).substr(0, kWhyBytesMax))
      .BindText(4, test.image)
      .Bind(5, test.at.unix_ms)
      .Run();
}

absl::StatusOr<std::map<std::string, JoinTest>> NodeOrders::Tests() {
  absl::MutexLock lock(&mutex_);
  OB_ASSIGN_OR_RETURN(Statement query,
                      db_->Prepare("SELECT serial, passed, why, image, at_ms FROM node_test"));
  std::map<std::string, JoinTest> tests;
  for (;;) {
    OB_ASSIGN_OR_RETURN(const bool more, query.Step());
    if (!more) return tests;
    tests[std::string(query.Text(0))] = {query.Int(1) != 0, std::string(query.Text(2)),
                                         std::string(query.Text(3)), WallTime{query.Int(4)}};
  }
}

absl::Status NodeOrders::Forget(std::string_view serial) {
  absl::MutexLock lock(&mutex_);
  for (const char* const sql :
       {"DELETE FROM node_order WHERE serial = ?", "DELETE FROM node_test WHERE serial = ?"}) {
    OB_ASSIGN_OR_RETURN(Statement remove, db_->Prepare(sql));
    OB_RETURN_IF_ERROR(remove.BindText(1, serial).Run());
  }
  return absl::OkStatus();
}

}  // namespace outboard::gateway
