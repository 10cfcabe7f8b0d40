// Signed statements: no field of a head or a receipt can be changed, and what was seen is kept.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/hex.h"
#include "tests/support/temp_folder.h"
#include "wire/proof/head_file.h"
#include "wire/proof/receipt.h"
#include "wire/proof/signed_head.h"
#include "wire/proof/signing_key.h"

namespace outboard::signing {
namespace {

std::string Bytes(const std::string& hex) {
  std::string bytes(hex.size() / 2, '\0');
  EXPECT_TRUE(FromHex(hex, {reinterpret_cast<uint8_t*>(bytes.data()), bytes.size()}));
  return bytes;
}

proto::LedgerHead HeadOf(const SigningKey& key, int64_t entries, int64_t account = 7) {
  proto::LedgerHead head;
  head.set_account(account);
  head.set_entries(entries);
  head.set_account_hash(std::string(kHashBytes, 'a'));
  head.set_ledger_entries(entries + 5);
  head.set_ledger_hash(std::string(kHashBytes, 'b'));
  head.set_at_unix_ms(1'700'000'000'000);
  Sign(key, head);
  return head;
}

proto::Receipt ReceiptOf(const SigningKey& key) {
  proto::Receipt receipt;
  receipt.set_session_id(std::string(16, 's'));
  receipt.set_grant(3);
  receipt.set_device(1);
  receipt.set_number(9);
  receipt.set_usable_ms(12'000);
  receipt.set_busy_ms(11'000);
  receipt.set_physical_device(PhysicalDevice(key.public_key(), 1));
  Sign(key, receipt);
  return receipt;
}

// The first test of RFC 8032, section 7.1.
TEST(SigningKeyTest, Signs_AsTheStandardSays) {
  test::TempFolder folder;
  const std::string path = folder.path() + "/key";
  std::ofstream(path) << "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60\n";
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  const auto key = SigningKey::Open(path);
  ASSERT_TRUE(key.ok()) << key.status();
  EXPECT_EQ(ToHex(key->public_key()),
            "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a");
  const std::string signature = Bytes(
      "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9"
      "b46bd25bf5f0595bbe24655141438e7a100b");
  EXPECT_EQ(ToHex(key->Sign("")), ToHex(signature));
  EXPECT_TRUE(IsSignedBy(key->public_key(), "", signature));
  EXPECT_FALSE(IsSignedBy(key->public_key(), "x", signature));
  EXPECT_FALSE(IsSignedBy(key->public_key(), "", signature.substr(1)));
  EXPECT_FALSE(IsSignedBy(key->public_key().substr(1), "", signature));
}

TEST(SigningKeyTest, Open_IsMadeOnceAndForItsOwnerAlone) {
  test::TempFolder folder;
  const std::string path = folder.path() + "/key";
  const auto made = SigningKey::Open(path), again = SigningKey::Open(path);
  ASSERT_TRUE(made.ok() && again.ok()) << made.status() << again.status();
  EXPECT_EQ(made->public_key(), again->public_key());
  EXPECT_NE(made->public_key(), SigningKey::Make().public_key());
  struct stat file;
  ASSERT_EQ(stat(path.c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 0777, 0600u);
  ASSERT_EQ(chmod(path.c_str(), 0644), 0);
  EXPECT_TRUE(absl::IsFailedPrecondition(SigningKey::Open(path).status()));
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  for (const std::string text : {"", "no key", "0123456789", "zz61b19deffd5a60ba844af492ec2cc44449c"
                                                             "5697b326919703bac031cae7f60"}) {
    std::ofstream(path, std::ios::trunc) << text;
    EXPECT_TRUE(absl::IsDataLoss(SigningKey::Open(path).status())) << text;
  }
}

TEST(SignedHead, Check_FindsEveryFieldThatChanged) {
  const SigningKey key = SigningKey::Make(), other = SigningKey::Make();
  const proto::LedgerHead good = HeadOf(key, 4);
  EXPECT_TRUE(CheckHead(good).ok());
  const std::vector<std::pair<const char*, std::function<void(proto::LedgerHead&)>>> changes = {
      {"account", [](auto& head) { head.set_account(8); }},
      {"entries", [](auto& head) { head.set_entries(3); }},
      {"account hash", [](auto& head) { (*head.mutable_account_hash())[31] ^= 1; }},
      {"ledger entries", [](auto& head) { head.set_ledger_entries(10); }},
      {"ledger hash", [](auto& head) { (*head.mutable_ledger_hash())[0] ^= 1; }},
      {"time", [](auto& head) { head.set_at_unix_ms(1); }},
      {"signature", [](auto& head) { (*head.mutable_signature())[9] ^= 1; }},
      {"key", [&](auto& head) { head.set_key(other.public_key()); }},
      {"no signature", [](auto& head) { head.clear_signature(); }},
      {"short hash", [](auto& head) { head.mutable_account_hash()->pop_back(); }},
      {"more entries than there are", [&](auto& head) {
         head.set_ledger_entries(3);
         Sign(key, head);
       }},
      {"no account", [&](auto& head) {
         head.set_account(0);
         Sign(key, head);
       }},
  };
  for (const auto& [what, change] : changes) {
    proto::LedgerHead head = good;
    change(head);
    EXPECT_TRUE(absl::IsDataLoss(CheckHead(head))) << what;
  }
}

TEST(ReceiptTest, Check_FindsEveryFieldThatChanged) {
  const SigningKey key = SigningKey::Make(), other = SigningKey::Make();
  const proto::Receipt good = ReceiptOf(key);
  EXPECT_TRUE(CheckReceipt(good).ok());
  const std::vector<std::pair<const char*, std::function<void(proto::Receipt&)>>> changes = {
      {"session", [](auto& r) { (*r.mutable_session_id())[0] ^= 1; }},
      {"grant", [](auto& r) { r.set_grant(4); }},
      {"device", [](auto& r) { r.set_device(0); }},
      {"number", [](auto& r) { r.set_number(10); }},
      {"usable", [](auto& r) { r.set_usable_ms(12'001); }},
      {"busy", [](auto& r) { r.set_busy_ms(11'001); }},
      {"physical device", [&](auto& r) {
         r.set_physical_device(PhysicalDevice(key.public_key(), 2));
       }},
      {"a device of another worker's", [&](auto& r) {
         r.set_physical_device(PhysicalDevice(other.public_key(), 1));
         Sign(key, r);
       }},
      {"no device", [&](auto& r) {
         r.clear_physical_device();
         Sign(key, r);
       }},
      {"key", [&](auto& r) { r.set_key(other.public_key()); }},
      {"busy for longer than usable", [&](auto& r) {
         r.set_busy_ms(12'001);
         Sign(key, r);
       }},
      {"number 0", [&](auto& r) {
         r.set_number(0);
         Sign(key, r);
       }},
      {"2^63 ms", [&](auto& r) {
         r.set_usable_ms(uint64_t{1} << 63);
         Sign(key, r);
       }},
      {"a long name", [&](auto& r) {
         r.set_physical_device(std::string(kPhysicalDeviceBytesMax + 1, 'x'));
         Sign(key, r);
       }},
  };
  for (const auto& [what, change] : changes) {
    proto::Receipt receipt = good;
    change(receipt);
    EXPECT_TRUE(absl::IsDataLoss(CheckReceipt(receipt))) << what;
  }
}

TEST(HeadFileTest, Read_ReturnsWhatWasAdded) {
  test::TempFolder folder;
  const HeadFile file(folder.path() + "/below/seen-heads");
  EXPECT_TRUE(file.Read()->heads.empty());
  const SigningKey key = SigningKey::Make();
  for (int64_t entries : {1, 2, 9})
    ASSERT_TRUE(file.Add({"gateway:6667", HeadOf(key, entries)}).ok());
  const auto read = file.Read();
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->heads.size(), 3u);
  EXPECT_EQ(read->heads[2].target, "gateway:6667");
  EXPECT_EQ(read->heads[2].head.SerializeAsString(), HeadOf(key, 9).SerializeAsString());
  EXPECT_EQ(read->damaged_lines, 0u);
}

TEST(HeadFileTest, Add_RefusesWhatNobodySigned) {
  test::TempFolder folder;
  const HeadFile file(folder.path() + "/seen-heads");
  proto::LedgerHead head = HeadOf(SigningKey::Make(), 1);
  EXPECT_TRUE(absl::IsInvalidArgument(file.Add({"two words", head})));
  EXPECT_TRUE(absl::IsInvalidArgument(file.Add({"", head})));
  head.set_entries(2);
  EXPECT_TRUE(absl::IsDataLoss(file.Add({"gateway", head})));
  EXPECT_TRUE(file.Read()->heads.empty());
}

TEST(HeadFileTest, Read_CountsDamagedLines) {
  test::TempFolder folder;
  const std::string path = folder.path() + "/seen-heads";
  const HeadFile file(path);
  ASSERT_TRUE(file.Add({"gateway", HeadOf(SigningKey::Make(), 1)}).ok());
  std::ofstream(path, std::ios::app) << "1 gateway 7\nnonsense\n";
  EXPECT_EQ(file.Read()->heads.size(), 1u);
  EXPECT_EQ(file.Read()->damaged_lines, 2u);
}

TEST(HeadFileTest, Add_StaysBoundedAndKeepsOldAndNewHeads) {
  test::TempFolder folder;
  const std::string path = folder.path() + "/seen-heads";
  const HeadFile file(path);
  const SigningKey key = SigningKey::Make();
  constexpr int64_t kHeads = 4000;
  for (int64_t i = 0; i < kHeads; ++i) ASSERT_TRUE(file.Add({"gateway", HeadOf(key, i)}).ok());
  struct stat size;
  ASSERT_EQ(stat(path.c_str(), &size), 0);
  EXPECT_LE(static_cast<size_t>(size.st_size), kHeadFileBytesMax);
  const auto read = file.Read();
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->damaged_lines, 0u);
  EXPECT_EQ(read->heads.front().head.entries(), 0);
  EXPECT_EQ(read->heads.back().head.entries(), kHeads - 1);
  EXPECT_GT(read->heads.size(), 500u);
  for (size_t i = 1; i < read->heads.size(); ++i)
    EXPECT_LT(read->heads[i - 1].head.entries(), read->heads[i].head.entries());
}

}  // namespace
}  // namespace outboard::signing
