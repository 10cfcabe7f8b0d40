// Credentials (wire/tpm/credential.h) are made without a TPM; a TPM judges them.
#include "wire/tpm/credential.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "tests/nodes/software_tpm.h"
#include "wire/tpm/tpm_keys.h"
#include "worker/tpm/node_tpm.h"

namespace outboard::test {
namespace {

using tpm::AttestationKeyName;
using tpm::EndorsementKey;
using tpm::KeyKind;
using tpm::MakeCredential;
using worker::NodeTpm;

const std::string kSecret(tpm::kSecretBytes, 's');

class KeyKinds : public ::testing::TestWithParam<KeyKind> {};
INSTANTIATE_TEST_SUITE_P(Each, KeyKinds, ::testing::Values(KeyKind::kRsa2048, KeyKind::kP256));

TEST_P(KeyKinds, ACredential_IsOpenedByTheTpmThatItIsFor_AndByNoOther) {
  OB_NEEDS_SWTPM();
  const SoftwareTpm first, second;
  auto tpm = NodeTpm::Open(first.where(), GetParam());
  ASSERT_TRUE(tpm.ok()) << tpm.status();
  const auto key = EndorsementKey::Parse((*tpm)->endorsement_key());
  ASSERT_TRUE(key.ok()) << key.status();
  EXPECT_EQ(key->kind(), GetParam());
  const auto name = AttestationKeyName((*tpm)->attestation_key());
  ASSERT_TRUE(name.ok()) << name.status();
  const tpm::Credential good = MakeCredential(*key, *name, kSecret).value();
  EXPECT_LE(good.id_object.size(), tpm::kCredentialBytesMax);
  EXPECT_LE(good.seed.size(), tpm::kSeedBytesMax);
  const auto opened = (*tpm)->Activate(good.id_object, good.seed);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(*opened, kSecret);
  // Altered in any part; for a key of another name.
  tpm::Credential altered = good;
  altered.id_object[5] ^= 1;  // its MAC
  EXPECT_FALSE((*tpm)->Activate(altered.id_object, altered.seed).ok());
  altered = good;
  altered.id_object.back() ^= 1;  // the secret
  EXPECT_FALSE((*tpm)->Activate(altered.id_object, altered.seed).ok());
  altered = good;
  altered.seed[7] ^= 1;
  EXPECT_FALSE((*tpm)->Activate(altered.id_object, altered.seed).ok());
  std::string of_another = *name;
  of_another.back() ^= 1;
  altered = MakeCredential(*key, of_another, kSecret).value();
  EXPECT_FALSE((*tpm)->Activate(altered.id_object, altered.seed).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(
      (*tpm)->Activate(std::string(tpm::kCredentialBytesMax + 1, 'x'), good.seed).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(
      (*tpm)->Activate(good.id_object, std::string(100'000, 'x')).status()));
  // What it refused has used nothing up.
  EXPECT_EQ((*tpm)->Activate(good.id_object, good.seed).value_or(""), kSecret);

  const auto other = NodeTpm::Open(second.where(), GetParam());
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_NE(EndorsementKey::Parse((*other)->endorsement_key())->fingerprint(),
            key->fingerprint());
  EXPECT_FALSE((*other)->Activate(good.id_object, good.seed).ok());
  // Asked again it makes the same keys; it has no room for two of each.
  const std::string endorsement = (*tpm)->endorsement_key(), signs = (*tpm)->attestation_key();
  tpm->reset();
  const auto again = NodeTpm::Open(first.where(), GetParam());
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ((*again)->endorsement_key(), endorsement);
  EXPECT_EQ((*again)->attestation_key(), signs);
  EXPECT_EQ((*again)->endorsement_certificate(), "");  // swtpm_setup would put one there
}

// Without a TPM: of what a template has, each bit counts; what is not of it is refused.
TEST(TpmKeys, WhatIsNotAsTheTemplatesHaveIt_IsRefused) {
  for (const KeyKind kind : {KeyKind::kRsa2048, KeyKind::kP256}) {
    std::string key = tpm::EndorsementTemplate(kind);
    EXPECT_FALSE(EndorsementKey::Parse(key).ok()) << "zeros are no key";
    const size_t own = kind == KeyKind::kRsa2048 ? 256 : 68;  // bytes of the key itself
    if (kind == KeyKind::kRsa2048) {
      key[key.size() - own] = '\x80';
      key.back() = 1;
      ASSERT_TRUE(EndorsementKey::Parse(key).ok());
      for (size_t i = 0; i < key.size() - own; ++i) {
        std::string altered = key;
        altered[i] ^= 1;
        EXPECT_FALSE(EndorsementKey::Parse(altered).ok()) << i;
      }
    }
    for (size_t size = 0; size < key.size(); ++size)
      EXPECT_FALSE(EndorsementKey::Parse(key.substr(0, size)).ok()) << size;
    EXPECT_FALSE(EndorsementKey::Parse(key + "x").ok());
    EXPECT_FALSE(AttestationKeyName(key).ok()) << "an endorsement key signs nothing";
  }
  EXPECT_FALSE(EndorsementKey::Parse(std::string(tpm::kPublicBytesMax + 1, 'x')).ok());
  EXPECT_FALSE(AttestationKeyName(tpm::AttestationTemplate()).ok()) << "no point of the curve";
  EXPECT_FALSE(AttestationKeyName("").ok());
}

TEST(TpmKeys, ACertificate_IsOfItsKey_OrRefused) {
  std::string bytes = tpm::EndorsementTemplate(KeyKind::kRsa2048);
  bytes[bytes.size() - 256] = '\x80';
  bytes.back() = 1;
  const EndorsementKey key = EndorsementKey::Parse(bytes).value();
  for (const std::string& certificate :
       {std::string(), std::string("\x30\x82\xff\xff", 4), std::string(100, '\x30'),
        std::string(tpm::kCertificateBytesMax + 1, '\x30')})
    EXPECT_TRUE(absl::IsInvalidArgument(key.IssuerOf(certificate).status()));
}

TEST(TpmAnswer, IsOfOneSecret_OneRequest_AndOneNode) {
  const std::string answer = tpm::AnswerOf(kSecret, "request", "s-1");
  EXPECT_EQ(answer.size(), tpm::kAnswerBytes);
  EXPECT_TRUE(tpm::IsSame(answer, tpm::AnswerOf(kSecret, "request", "s-1")));
  EXPECT_FALSE(tpm::IsSame(answer, tpm::AnswerOf(std::string(32, 't'), "request", "s-1")));
  EXPECT_FALSE(tpm::IsSame(answer, tpm::AnswerOf(kSecret, "requests", "-1")));
  EXPECT_FALSE(tpm::IsSame(answer, tpm::AnswerOf(kSecret, "request", "s-2")));
  EXPECT_FALSE(tpm::IsSame("", answer));
}

TEST(NodeTpm, WhereNothingAnswers_ItSaysSo) {
  const auto tpm = NodeTpm::Open("swtpm:path=/nonexistent/tpm");
  EXPECT_TRUE(absl::IsUnavailable(tpm.status())) << tpm.status();
  EXPECT_NE(tpm.status().message().find("swtpm:path=/nonexistent/tpm"), absl::string_view::npos)
      << tpm.status();
}

}  // namespace
}  // namespace outboard::test
