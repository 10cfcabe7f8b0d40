#include "tests/net/message_ends.h"

#include <gtest/gtest.h>

#include <string>

namespace outboard::test {
namespace {

std::string Frame(int type, int stream, const std::string& payload) {
  std::string frame;
  for (int shift : {16, 8, 0}) frame += static_cast<char>(payload.size() >> shift);
  frame += static_cast<char>(type);
  frame += '\0';
  for (int shift : {24, 16, 8, 0}) frame += static_cast<char>(stream >> shift);
  return frame + payload;
}

std::string Message(size_t length) {
  std::string message(1, '\0');
  for (int shift : {24, 16, 8, 0}) message += static_cast<char>(length >> shift);
  return message + std::string(length, 'm');
}

TEST(MessageEnds, InWhateverPiecesTheBytesCome) {
  const std::string three = Message(300) + Message(0) + Message(20000);
  std::string bytes(24, 'P');
  std::vector<size_t> expected;
  bytes += Frame(4, 0, "settings") + Frame(1, 1, std::string(500, 'h'));
  bytes += Frame(0, 1, three.substr(0, 200));
  bytes += Frame(0, 3, Message(7));  // another stream, within a message of the first
  expected.push_back(bytes.size());
  const size_t second = bytes.size() + 9;
  bytes += Frame(0, 1, three.substr(200, 10000));
  expected.push_back(second + 305 - 200);
  expected.push_back(second + 310 - 200);
  bytes += Frame(8, 0, "wind");
  bytes += Frame(0, 1, three.substr(10200));
  expected.push_back(bytes.size());

  for (const size_t piece : {size_t{1}, size_t{7}, size_t{4096}, bytes.size()}) {
    MessageEnds ends(/*from_client=*/true);
    std::vector<size_t> found;
    for (size_t at = 0; at < bytes.size(); at += piece)
      for (const size_t end : ends.In(std::string_view(bytes).substr(at, piece)))
        found.push_back(at + end);
    EXPECT_EQ(found, expected) << "pieces of " << piece;
  }
}

}  // namespace
}  // namespace outboard::test
