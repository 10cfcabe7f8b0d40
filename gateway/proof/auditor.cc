#include "gateway/proof/auditor.h"

#include <map>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/failpoint.h"
#include "base/hex.h"
#include "base/thread_slice.h"
#include "wire/tls/private_file.h"

namespace outboard::gateway {
namespace {

constexpr std::string_view kAuditTag = "outboard.audit.1";
constexpr size_t kAuditedBytesMax = 512;

// What an audit has verified.
struct Audited {
  int64_t entries = 0;
  std::string head_hash;  // hex
};

std::string Statement(const Audited& audited) {
  return signing::StatementBytes(kAuditTag).Int(audited.entries).Bytes(audited.head_hash).str();
}

std::string AuditedPath(const std::string& data_folder) { return data_folder + "/audited-head"; }

// Nothing: there was no audit. DATA_LOSS: this gateway did not sign it.
absl::StatusOr<Audited> ReadAudited(const std::string& data_folder,
                                    const signing::SigningKey& key) {
  auto text = tls::ReadFile(AuditedPath(data_folder), /*is_secret=*/false, kAuditedBytesMax);
  if (absl::IsNotFound(text.status())) return Audited{};
  if (absl::IsInvalidArgument(text.status()))
    return absl::DataLossError("the audited head is none");
  if (!text.ok()) return text.status();
  if (!text->empty() && text->back() == '\n') text->pop_back();
  const std::vector<std::string> words = absl::StrSplit(*text, ' ');
  Audited audited;
  std::string signature(signing::kSignatureBytes, '\0');
  if (words.size() != 3 || !absl::SimpleAtoi(words[0], &audited.entries) || audited.entries < 0 ||
      !FromHex(words[2], {reinterpret_cast<uint8_t*>(signature.data()), signature.size()}))
    return absl::DataLossError("the audited head is none");
  audited.head_hash = words[1];
  if (!signing::IsSignedBy(key.public_key(), Statement(audited), signature))
    return absl::DataLossError("the audited head is not signed by this gateway's key");
  return audited;
}

absl::Status WriteAudited(const std::string& data_folder, const signing::SigningKey& key,
                          const Audited& audited) {
  PassFailpoint("audit.before_note");
  OB_RETURN_IF_ERROR(
      tls::WriteFile(AuditedPath(data_folder),
                        absl::StrCat(audited.entries, " ", audited.head_hash, " ",
                                     ToHex(key.Sign(Statement(audited))), "\n"),
                        /*is_secret=*/false, tls::Replace::kYes));
  PassFailpoint("audit.after_note");
  return absl::OkStatus();
}

}  // namespace

std::string LedgerKeyPath(const std::string& data_folder) { return data_folder + "/ledger.key"; }

std::vector<WorkerShortfall> ByWorker(const std::vector<ReceiptShortfall>& shortfalls) {
  std::map<std::string, WorkerShortfall> by_key;
  for (const ReceiptShortfall& one : shortfalls) {
    const std::string key = one.physical_device.substr(0, one.physical_device.find('/'));
    WorkerShortfall& of = by_key[key];
    of.worker = key;
    ++of.devices;
    of.charged_ms += one.charged_ms;
    of.signed_ms += one.signed_ms;
  }
  std::vector<WorkerShortfall> all;
  for (auto& [key, of] : by_key) all.push_back(std::move(of));
  return all;
}

absl::StatusOr<AuditReport> Audit(const std::string& data_folder,
                                  const std::string& accounts_path) {
  OB_ASSIGN_OR_RETURN(const signing::SigningKey key,
                      signing::SigningKey::Open(LedgerKeyPath(data_folder)));
  // A file of an older version gets its new columns first, and no entry changes by that.
  OB_ASSIGN_OR_RETURN(const std::unique_ptr<Ledger> ledger,
                      Ledger::Open(accounts_path, {.create = false}));
  AuditReport report;
  OB_ASSIGN_OR_RETURN(const Audited before, ReadAudited(data_folder, key));
  OB_ASSIGN_OR_RETURN(report.ledger, ledger->Verify());
  // A file from before there were receipts has none.
  OB_ASSIGN_OR_RETURN(const std::unique_ptr<ReceiptRows> receipts,
                      ReceiptRows::Open(accounts_path));
  OB_ASSIGN_OR_RETURN(report.receipts, receipts->Verify());
  OB_ASSIGN_OR_RETURN(report.shortfalls, receipts->Shortfalls(kShortfallsShown));
  if (before.entries > 0) {
    const auto hash = ledger->HashOfEntry(before.entries);
    if (absl::IsNotFound(hash.status()))
      return absl::DataLossError(
          absl::StrCat("ledger: its end is cut: ", before.entries,
                       " entries were audited before, and there are ", report.ledger.entries));
    if (!hash.ok()) return hash.status();
    if (ToHex(*hash) != before.head_hash)
      return absl::DataLossError(absl::StrCat("ledger: it was written anew: entry ", before.entries,
                                              " is not the one that was audited before"));
    report.verified_before = before.entries;
  }
  // A gateway's audit and one by hand may end in any order.
  if (report.ledger.entries > before.entries)
    OB_RETURN_IF_ERROR(
        WriteAudited(data_folder, key, {report.ledger.entries, report.ledger.head_hash}));
  return report;
}

Auditor::Auditor(std::function<absl::StatusOr<AuditReport>()> audit, Found found,
                 std::chrono::milliseconds every)
    : audit_(std::move(audit)),
      found_(std::move(found)),
      every_(every),
      thread_([this] { Work(); }) {}

Auditor::~Auditor() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

bool Auditor::AwaitFirst(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, limit, [this] { return has_first_; });
}

void Auditor::Work() {
  YieldToOthers(0);
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    lock.unlock();
    found_(audit_());
    lock.lock();
    has_first_ = true;
    changed_.notify_all();
    changed_.wait_for(lock, every_, [this] { return stopping_; });
  }
}

}  // namespace outboard::gateway
