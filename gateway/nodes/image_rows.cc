#include "gateway/nodes/image_rows.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "gateway/base/node_serial.h"

namespace outboard::gateway {
namespace {

using storage::Database;
using storage::Statement;

constexpr const char* kSchema[] = {
    // `node_boot` is what a rollout says of a node: `fallback` is not null while it tries `image`.
    // `tried`: so often it has asked since then, or since it was last told to restart; at most 2.
    R"sql(
CREATE TABLE image(
  digest TEXT PRIMARY KEY,
  kernel TEXT NOT NULL,
  bytes INTEGER NOT NULL,
  added_ms INTEGER NOT NULL,
  served_ms INTEGER
) STRICT;
CREATE TABLE image_use(
  nodes TEXT PRIMARY KEY,
  image TEXT NOT NULL,
  before TEXT NOT NULL,
  since_ms INTEGER NOT NULL
) STRICT;
CREATE TABLE node_boot(
  serial TEXT PRIMARY KEY,
  image TEXT NOT NULL,
  fallback TEXT,
  tried INTEGER NOT NULL,
  within_ms INTEGER NOT NULL
) STRICT;
CREATE TABLE rollout(
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  image TEXT NOT NULL,
  nodes TEXT NOT NULL,
  share_percent INTEGER NOT NULL,
  within_ms INTEGER NOT NULL,
  state INTEGER NOT NULL,
  why TEXT NOT NULL,
  began_ms INTEGER NOT NULL
) STRICT;
CREATE TABLE rollout_node(
  rollout INTEGER NOT NULL,
  serial TEXT NOT NULL,
  image_from TEXT NOT NULL,
  state INTEGER NOT NULL,
  boot TEXT NOT NULL,
  since_ms INTEGER NOT NULL,
  tries INTEGER NOT NULL,
  why TEXT NOT NULL,
  PRIMARY KEY(rollout, serial)
) STRICT;
)sql",
    "ALTER TABLE rollout_node ADD COLUMN signs INTEGER NOT NULL DEFAULT 0",
};

constexpr size_t kPatternBytesMax = kNodeSerialBytesMax + 8;

absl::Status NoImage(std::string_view digest) {
  return absl::NotFoundError(absl::StrCat("no image ", std::string(digest),
                                          " was added; `outboard image ls` lists those that were"));
}

// What a rollout's states are on disk. A damaged file: the one from which nothing more is done.
RolloutState StateOf(int64_t number) {
  return number >= 0 && number <= static_cast<int64_t>(RolloutState::kRolledBack)
             ? static_cast<RolloutState>(number)
             : RolloutState::kStopped;
}
RolloutNodeState NodeStateOf(int64_t number) {
  return number >= 0 && number <= static_cast<int64_t>(RolloutNodeState::kTakenBack)
             ? static_cast<RolloutNodeState>(number)
             : RolloutNodeState::kPending;
}

bool IsSame(const Rollout& a, const Rollout& b) {
  if (a.state != b.state || a.why != b.why || a.by_serial.size() != b.by_serial.size())
    return false;
  return std::equal(a.by_serial.begin(), a.by_serial.end(), b.by_serial.begin(),
                    [](const auto& one, const auto& other) {
                      return one.first == other.first && one.second.state == other.second.state &&
                             one.second.since == other.second.since &&
                             one.second.signs == other.second.signs &&
                             one.second.tries == other.second.tries;
                    });
}

}  // namespace

absl::Status CheckNodePattern(std::string_view pattern) {
  const bool good =
      !pattern.empty() && pattern.size() <= kPatternBytesMax &&
      std::all_of(pattern.begin(), pattern.end(), [](char c) {
        return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' ||
               c == '-' || c == '*';
      });
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "a pattern of serial numbers is letters, digits, '.', '_', '-', and '*' for any text");
}

bool FitsNodePattern(std::string_view pattern, std::string_view serial) {
  size_t p = 0, s = 0, star = std::string_view::npos, from = 0;
  while (s < serial.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      from = s;
    } else if (p < pattern.size() && pattern[p] == serial[s]) {
      ++p;
      ++s;
    } else if (star != std::string_view::npos) {
      p = star + 1;  // the star takes one more
      s = ++from;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

absl::StatusOr<std::unique_ptr<ImageRows>> ImageRows::Open(const std::string& path,
                                                           const storage::OpenOptions& options) {
  OB_ASSIGN_OR_RETURN(std::unique_ptr<Database> db,
                      Database::OpenFor("images", kSchema, path, options));
  return std::unique_ptr<ImageRows>(new ImageRows(std::move(db)));
}

absl::StatusOr<std::optional<ImageRow>> ImageRows::Find(std::string_view digest) {
  OB_ASSIGN_OR_RETURN(Statement find,
                      db_->Prepare("SELECT digest, kernel, bytes, added_ms, served_ms FROM image "
                                   "WHERE digest = ?"));
  find.BindText(1, digest);
  OB_ASSIGN_OR_RETURN(const bool found, find.Step());
  if (!found) return std::nullopt;
  ImageRow row{.digest = std::string(find.Text(0)),
               .kernel = std::string(find.Text(1)),
               .bytes = static_cast<uint64_t>(find.Int(2)),
               .added = WallTime{find.Int(3)}};
  if (!find.IsNull(4)) row.served = WallTime{find.Int(4)};
  return row;
}

absl::Status ImageRows::Add(const ImageRow& image) {
  absl::MutexLock lock(&mutex_);
  return db_->Transaction(Database::Mode::kWrite, [&]() -> absl::Status {
    OB_ASSIGN_OR_RETURN(Statement count, db_->Prepare("SELECT count(*) FROM image"));
    OB_RETURN_IF_ERROR(count.Step().status());
    if (count.Int(0) >= kImagesMax)
      return absl::ResourceExhaustedError(
          absl::StrCat("there are ", count.Int(0), " images; limit ", kImagesMax));
    OB_ASSIGN_OR_RETURN(Statement write,
                        db_->Prepare("INSERT INTO image(digest, kernel, bytes, added_ms) "
                                     "VALUES(?, ?, ?, ?) ON CONFLICT(digest) DO NOTHING"));
    return write.BindText(1, image.digest)
        .BindText(2, image.kernel)
        .Bind(3, static_cast<int64_t>(image.bytes))
        .Bind(4, image.added.unix_ms)
        .Run();
  });
}

absl::StatusOr<std::vector<ImageRow>> ImageRows::List() {
  absl::MutexLock lock(&mutex_);
  OB_ASSIGN_OR_RETURN(Statement all,
                      db_->Prepare("SELECT digest FROM image ORDER BY added_ms, digest"));
  std::vector<ImageRow> images;
  for (;;) {
    OB_ASSIGN_OR_RETURN(const bool more, all.Step());
    if (!more) return images;
    OB_ASSIGN_OR_RETURN(const std::optional<ImageRow> image, Find(all.Text(0)));
    if (image.has_value()) images.push_back(*image);
  }
}

absl::StatusOr<std::vector<ImageUse>> ImageRows::Uses() {
  absl::MutexLock lock(&mutex_);
  OB_ASSIGN_OR_RETURN(Statement all,
                      db_->Prepare("SELECT nodes, image FROM image_use ORDER BY nodes"));
  std::vector<ImageUse> uses;
  for (;;) {
    OB_ASSIGN_OR_RETURN(const bool more, all.Step());
    if (!more) return uses;
    uses.push_back({std::string(all.Text(0)), std::string(all.Text(1))});
  }
}

absl::Status ImageRows::CheckNoneUnderWay() {
  OB_ASSIGN_OR_RETURN(const std::optional<Rollout> last, ReadRollout());
  if (!last.has_value() || IsSettled(*last)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "the rollout of ", last->image, " to ", last->nodes, " is ", ToString(last->state),
      "; `outboard image rollback` takes it back, `outboard image ls` shows how far it is"));
}

absl::Status ImageRows::WriteUse(const std::string& image, const std::string& nodes, WallTime now) {
  OB_ASSIGN_OR_RETURN(Statement write,
                      db_->Prepare("INSERT INTO image_use(nodes, image, before, since_ms) "
                                   "VALUES(?, ?, '', ?) ON CONFLICT(nodes) DO UPDATE SET before = "
                                   "image, image = excluded.image, since_ms = excluded.since_ms"));
  OB_RETURN_IF_ERROR(write.BindText(1, nodes).BindText(2, image).Bind(3, now.unix_ms).Run());
  // What rollouts said of these nodes is of the past.
  OB_ASSIGN_OR_RETURN(Statement said, db_->Prepare("SELECT serial FROM node_boot"));
  std::vector<std::string> over;
  for (;;) {
    OB_ASSIGN_OR_RETURN(const bool more, said.Step());
    if (!more) break;
    if (FitsNodePattern(nodes, said.Text(0))) over.emplace_back(said.Text(0));
  }
  for (const std::string& serial : over) {
    OB_ASSIGN_OR_RETURN(Statement remove, db_->Prepare("DELETE FROM node_boot WHERE serial = ?"));
    OB_RETURN_IF_ERROR(remove.BindText(1, serial).Run());
  }
  return absl::OkStatus();
}

absl::Status ImageRows::Use(const std::string& image, const std::string& nodes, WallTime now) {
  OB_RETURN_IF_ERROR(CheckNodePattern(nodes));
  absl::MutexLock lock(&mutex_);
  return db_->Transaction(Database::Mode::kWrite, [&]() -> absl::Status {
    OB_ASSIGN_OR_RETURN(const std::optional<ImageRow> row, Find(image));
    if (!row.has_value()) return NoImage(image);
    OB_RETURN_IF_ERROR(CheckNoneUnderWay());
    return WriteUse(image, nodes, now);
  });
}

absl::StatusOr<Rollout> ImageRows::Begin(Rollout rollout,
                                         const std::map<std::string, std::string>& images_now,
                                         WallTime now) {
  OB_RETURN_IF_ERROR(CheckNodePattern(rollout.nodes));
  if (rollout.share_percent < 1 || rollout.share_percent > 100)
    return absl::InvalidArgumentError(
        absl::StrCat("a share of ", rollout.share_percent, " percent; 1 to 100"));
  if (rollout.within_ms < kRolloutWithinMinMs || rollout.within_ms > kRolloutWithinMaxMs)
    return absl::InvalidArgumentError(absl::StrCat("a node must serve within ",
                                                   rollout.within_ms / 1000, " s; ",
                                                   kRolloutWithinMinMs / 1000, " to ",
                                                   kRolloutWithinMaxMs / 1000));
  rollout.by_serial.clear();
  for (const auto& [serial, image] : images_now)
    if (FitsNodePattern(rollout.nodes, serial) && image != rollout.image)
      rollout.by_serial[serial] = RolloutNode{.from = image};
  rollout.began = now;
  rollout.state = RolloutState::kRunning;
  absl::MutexLock lock(&mutex_);
  OB_RETURN_IF_ERROR(db_->Transaction(Database::Mode::kWrite, [&]() -> absl::Status {
    OB_ASSIGN_OR_RETURN(const std::optional<ImageRow> image, Find(rollout.image));
    if (!image.has_value()) return NoImage(rollout.image);
    if (!image->served.has_value())
      return absl::FailedPreconditionError(
          absl::StrCat("no node has served ", rollout.image,
                       " yet: let one boot it first (`outboard image use ", rollout.image,
                       " --nodes SERIAL`, `outboard node reboot SERIAL`)"));
    OB_RETURN_IF_ERROR(CheckNoneUnderWay());
    if (rollout.by_serial.empty())
      return absl::NotFoundError(absl::StrCat("no node that fits ", rollout.nodes,
                                              " has enrolled with another image"));
    // Where nothing was said of them yet, what each runs now is what it boots if this fails.
    OB_ASSIGN_OR_RETURN(
        Statement write,
        db_->Prepare("INSERT INTO rollout(image, nodes, share_percent, within_ms, state, why, "
                     "began_ms) VALUES(?, ?, ?, ?, ?, '', ?) RETURNING id"));
    write.BindText(1, rollout.image)
        .BindText(2, rollout.nodes)
        .Bind(3, rollout.share_percent)
        .Bind(4, rollout.within_ms)
        .Bind(5, static_cast<int64_t>(rollout.state))
        .Bind(6, now.unix_ms);
    OB_RETURN_IF_ERROR(write.Step().status());
    rollout.id = write.Int(0);
    OB_RETURN_IF_ERROR(write.Step().status());
    return WriteRollout(rollout);
  }));
  return rollout;
}

absl::StatusOr<std::optional<Rollout>> ImageRows::ReadRollout() {
  OB_ASSIGN_OR_RETURN(Statement last,
                      db_->Prepare("SELECT id, image, nodes, share_percent, within_ms, state, why, "
                                   "began_ms FROM rollout ORDER BY id DESC LIMIT 1"));
  OB_ASSIGN_OR_RETURN(const bool found, last.Step());
  if (!found) return std::nullopt;
  Rollout rollout{.id = last.Int(0),
                  .image = std::string(last.Text(1)),
                  .nodes = std::string(last.Text(2)),
                  .share_percent = static_cast<int>(last.Int(3)),
                  .within_ms = last.Int(4),
                  .state = StateOf(last.Int(5)),
                  .why = std::string(last.Text(6)),
                  .began = WallTime{last.Int(7)}};
  OB_ASSIGN_OR_RETURN(Statement nodes,
                      db_->Prepare("SELECT serial, image_from, state, boot, since_ms, tries, why, "
                                   "signs FROM rollout_node WHERE rollout = ?"));
  nodes.Bind(1, rollout.id);
  for (;;) {
    OB_ASSIGN_OR_RETURN(const bool more, nodes.Step());
    if (!more) return rollout;
    rollout.by_serial[std::string(nodes.Text(0))] =
        RolloutNode{.from = std::string(nodes.Text(1)),
                    .state = NodeStateOf(nodes.Int(2)),
                    .boot = std::string(nodes.Text(3)),
                    .since = WallTime{nodes.Int(4)},
                    .tries = static_cast<int>(nodes.Int(5)),
                    .signs = static_cast<int>(nodes.Int(7)),
                    .why = std::string(nodes.Text(6))};
  }
}

absl::Status ImageRows::WriteRollout(const Rollout& rollout) {
  OB_ASSIGN_OR_RETURN(Statement write,
                      db_->Prepare("UPDATE rollout SET state = ?, why = ? WHERE id = ?"));
  OB_RETURN_IF_ERROR(write.Bind(1, static_cast<int64_t>(rollout.state))
                         .BindText(2, rollout.why)
                         .Bind(3, rollout.id)
                         .Run());
  OB_ASSIGN_OR_RETURN(
      Statement node,
      db_->Prepare("INSERT INTO rollout_node(rollout, serial, image_from, state, boot, since_ms, "
                   "tries, why, signs) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT(rollout, "
                   "serial) DO UPDATE SET state = excluded.state, boot = excluded.boot, since_ms = "
                   "excluded.since_ms, tries = excluded.tries, why = excluded.why, signs = "
                   "excluded.signs"));
  for (const auto& [serial, of] : rollout.by_serial) {
    OB_RETURN_IF_ERROR(node.Bind(1, rollout.id)
                           .BindText(2, serial)
                           .BindText(3, of.from)
                           .Bind(4, static_cast<int64_t>(of.state))
                           .BindText(5, of.boot)
                           .Bind(6, of.since.unix_ms)
                           .Bind(7, of.tries)
                           .BindText(8, of.why)
                           .Bind(9, of.signs)
                           .Run());
    node.Reset();
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<Rollout>> ImageRows::LastRollout() {
  absl::MutexLock lock(&mutex_);
  return ReadRollout();
}

absl::StatusOr<Rollout> ImageRows::RollBack() {
  absl::MutexLock lock(&mutex_);
  std::optional<Rollout> last;
  OB_RETURN_IF_ERROR(db_->Transaction(Database::Mode::kWrite, [&]() -> absl::Status {
    OB_ASSIGN_OR_RETURN(last, ReadRollout());
    if (!last.has_value() || last->state == RolloutState::kRolledBack)
      return absl::NotFoundError("there is no rollout to take back");
    // What the nodes that were not there would get.
    if (last->state == RolloutState::kDone) {
      for (const char* const sql :
           {"UPDATE image_use SET image = before WHERE nodes = ? AND image = ? AND before <> ''",
            "DELETE FROM image_use WHERE nodes = ? AND image = ?"}) {
        OB_ASSIGN_OR_RETURN(Statement restore, db_->Prepare(sql));
        OB_RETURN_IF_ERROR(restore.BindText(1, last->nodes).BindText(2, last->image).Run());
      }
    }
    Rollback(*last);
    return WriteRollout(*last);
  }));
  return *last;
}

absl::StatusOr<std::optional<BootImageChoice>> ImageRows::ChooseBoot(std::string_view serial,
                                                                     bool takes) {
  absl::MutexLock lock(&mutex_);
  std::optional<BootImageChoice> choice;
  OB_RETURN_IF_ERROR(db_->Transaction(Database::Mode::kWrite, [&]() -> absl::Status {
    OB_ASSIGN_OR_RETURN(Statement said,
                        db_->Prepare("SELECT image, fallback, tried, within_ms FROM node_boot "
                                     "WHERE serial = ?"));
    said.BindText(1, serial);
    OB_ASSIGN_OR_RETURN(const bool is_said, said.Step());
    if (is_said) {
      const bool tries = !said.IsNull(1);
      const bool tried = said.Int(2) != 0;
      choice = BootImageChoice{.image = std::string(said.Text(tries && tried ? 1 : 0)),
                               .on_trial = tries && !tried,
                               .within_ms = said.Int(3)};
      if (!takes) return absl::OkStatus();
      OB_ASSIGN_OR_RETURN(Statement take,
                          db_->Prepare("UPDATE node_boot SET tried = min(2, tried + 1) "
                                       "WHERE serial = ?"));
      return take.BindText(1, serial).Run();
    }
    OB_ASSIGN_OR_RETURN(Statement uses,
                        db_->Prepare("SELECT nodes, image FROM image_use ORDER BY length(nodes) "
                                     "DESC, nodes"));
    for (;;) {
      OB_ASSIGN_OR_RETURN(const bool more, uses.Step());
      if (!more) return absl::OkStatus();
      if (!FitsNodePattern(uses.Text(0), serial)) continue;
      choice = BootImageChoice{.image = std::string(uses.Text(1))};
      return absl::OkStatus();
    }
  }));
  // A node of which its old image is not known gets what the boot server has otherwise.
  if (choice.has_value() && choice->image.empty()) return std::nullopt;
  return choice;
}

absl::Status ImageRows::NoteServed(std::string_view image, WallTime now) {
  absl::MutexLock lock(&mutex_);
  OB_ASSIGN_OR_RETURN(
      Statement note,
      db_->Prepare("UPDATE image SET served_ms = ? WHERE digest = ? AND served_ms IS NULL"));
  return note.Bind(1, now.unix_ms).BindText(2, image).Run();
}

absl::StatusOr<ImageRows::Stepped> ImageRows::StepRollout(
    const std::map<std::string, NodeSeen>& seen, WallTime now) {
  Stepped stepped;
  absl::MutexLock lock(&mutex_);
  // Asked every second, and there is almost never one: nobody else is to wait for it.
  OB_ASSIGN_OR_RETURN(const std::optional<Rollout> any, ReadRollout());
  if (!any.has_value() || IsSettled(*any)) return stepped;
  OB_RETURN_IF_ERROR(db_->Transaction(Database::Mode::kWrite, [&]() -> absl::Status {
    OB_ASSIGN_OR_RETURN(std::optional<Rollout> last, ReadRollout());
    if (!last.has_value() || IsSettled(*last)) return absl::OkStatus();
    const Rollout before = *last;
    OB_ASSIGN_OR_RETURN(Statement tried,
                        db_->Prepare("SELECT serial, tried, fallback FROM node_boot WHERE tried"));
    std::map<std::string, NodeSeen> of_rollout;
    for (const auto& [serial, node] : last->by_serial)
      if (const auto at = seen.find(serial); at != seen.end()) of_rollout.insert(*at);
    for (;;) {
      OB_ASSIGN_OR_RETURN(const bool more, tried.Step());
      if (!more) break;
      const std::string serial(tried.Text(0));
      if (!last->by_serial.contains(serial)) continue;
      of_rollout[serial].has_asked = true;
      of_rollout[serial].has_asked_again = tried.Int(1) > 1 && !tried.IsNull(2);
    }
    const std::vector<RolloutAction> actions = Step(*last, of_rollout, now);
    OB_ASSIGN_OR_RETURN(
        Statement boot,
        db_->Prepare("INSERT INTO node_boot(serial, image, fallback, tried, within_ms) "
                     "VALUES(?, ?, ?, 0, ?) ON CONFLICT(serial) DO UPDATE SET image = "
                     "excluded.image, fallback = excluded.fallback, tried = 0, within_ms = "
                     "excluded.within_ms"));
    const auto keep = [&](const std::string& serial, const std::string& image,
                          const std::string* fallback) {
      boot.Reset();
      boot.BindText(1, serial).BindText(2, image).Bind(4, last->within_ms);
      fallback == nullptr ? boot.BindNull(3) : boot.BindText(3, *fallback);
      return boot.Run();
    };
    for (const RolloutAction& action : actions) {
      using Kind = RolloutAction::Kind;
      if (action.kind == Kind::kTryImage) {
        OB_RETURN_IF_ERROR(keep(action.serial, action.image, &last->by_serial[action.serial].from));
      } else if (action.kind == Kind::kKeepImage) {
        OB_RETURN_IF_ERROR(keep(action.serial, action.image, nullptr));
      } else {
        // Counts its requests anew. Not for a node on trial: it would be given that image again.
        if (last->by_serial[action.serial].state == RolloutNodeState::kReturning) {
          OB_ASSIGN_OR_RETURN(Statement told,
                              db_->Prepare("UPDATE node_boot SET tried = 0 WHERE serial = ?"));
          OB_RETURN_IF_ERROR(told.BindText(1, action.serial).Run());
        }
        stepped.actions.push_back(action);
      }
    }
    // Served: the trial is over.
    for (const auto& [serial, node] : last->by_serial)
      if (node.state == RolloutNodeState::kUpdated &&
          before.by_serial.at(serial).state != RolloutNodeState::kUpdated)
        OB_RETURN_IF_ERROR(keep(serial, last->image, nullptr));
    if (last->state == RolloutState::kDone)
      OB_RETURN_IF_ERROR(WriteUse(last->image, last->nodes, now));
    if (IsSame(before, *last)) return absl::OkStatus();
    OB_RETURN_IF_ERROR(WriteRollout(*last));
    stepped.changed = *std::move(last);
    return absl::OkStatus();
  }));
  return stepped;
}

}  // namespace outboard::gateway
