// `outboard viz` over plain HTTP: what it serves, to whom, and what it refuses.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <iterator>

#include "cli/commands.h"
#include "tests/cli/recorded_programs.h"

namespace outboard::cli {
namespace {

// A connection to a server of this machine.
class Client {
 public:
  explicit Client(int port) : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in place = {};
    place.sin_family = AF_INET;
    place.sin_port = htons(static_cast<uint16_t>(port));
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(socket_, reinterpret_cast<sockaddr*>(&place), sizeof place) == 0;
  }
  ~Client() { close(socket_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  bool connected() const { return connected_; }
  void Send(const std::string& text) {
    ASSERT_EQ(send(socket_, text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }
  // Until the server closes the connection.
  std::string ReadAll() {
    std::string all;
    char part[4096];
    for (ssize_t n; (n = recv(socket_, part, sizeof part, 0)) > 0;) all.append(part, n);
    return all;
  }

 private:
  const int socket_;
  bool connected_ = false;
};

class VizTest : public testing::Test {
 protected:
  std::string Ask(const std::string& method, const std::string& target,
                  const std::string& host = "127.0.0.1") {
    Client client(server_->port());
    client.Send(method + " " + target + " HTTP/1.1\r\nHost: " + host +
                "\r\nConnection: close\r\n\r\n");
    return client.ReadAll();
  }
  static std::string StatusOf(const std::string& answer) {
    return answer.substr(0, answer.find("\r\n"));
  }
  static std::string BodyOf(const std::string& answer) {
    return answer.substr(std::min(answer.size(), answer.find("\r\n\r\n") + 4));
  }

  const test::TempFolder folder_;
  const std::string file_ = test::RecordTwoPrograms(folder_);
  const std::unique_ptr<PageServer> server_ = ValueOrDie(PageServer::Start(0, VizResources(file_)));
};

TEST_F(VizTest, ServesThePageAndTheFile) {
  const std::string page = Ask("GET", "/");
  EXPECT_EQ(StatusOf(page), "HTTP/1.1 200 OK");
  EXPECT_NE(page.find("Content-Security-Policy: default-src 'none'"), std::string::npos);
  EXPECT_TRUE(BodyOf(page).starts_with("<!DOCTYPE html>"));
  EXPECT_EQ(page.find("://", page.find("<!DOCTYPE html>")), page.find("://www.w3.org/2000/svg"))
      << "nothing of the page comes from elsewhere";
  std::ifstream in(file_);
  const std::string written(std::istreambuf_iterator<char>(in), {});
  EXPECT_EQ(BodyOf(Ask("GET", "/rewrites?again")), written);
  EXPECT_NE(written.find("\"begin\":\"merge\""), std::string::npos);
}

TEST_F(VizTest, TheFileIsReadWhenItIsAskedFor) {
  const size_t before = BodyOf(Ask("GET", "/rewrites")).size();
  std::ofstream(file_, std::ios::app) << "{\"full\":true}\n";
  EXPECT_EQ(BodyOf(Ask("GET", "/rewrites")).size(), before + 14);
  std::filesystem::remove(file_);
  EXPECT_EQ(StatusOf(Ask("GET", "/rewrites")), "HTTP/1.1 500 Internal Server Error");
}

TEST_F(VizTest, HeadHasNoBody) {
  const std::string answer = Ask("HEAD", "/");
  EXPECT_EQ(StatusOf(answer), "HTTP/1.1 200 OK");
  EXPECT_EQ(BodyOf(answer), "");
  EXPECT_EQ(answer.find("Content-Length: 0"), std::string::npos);
}

TEST_F(VizTest, Refuses) {
  EXPECT_EQ(StatusOf(Ask("GET", "/other")), "HTTP/1.1 404 Not Found");
  EXPECT_EQ(StatusOf(Ask("GET", "/../" + file_)), "HTTP/1.1 404 Not Found");
  EXPECT_EQ(StatusOf(Ask("DELETE", "/rewrites")), "HTTP/1.1 405 Method Not Allowed");
}

// A name elsewhere may resolve to this machine; its pages must not read what is here.
TEST_F(VizTest, AnswersToItsOwnNameOnly) {
  EXPECT_EQ(StatusOf(Ask("GET", "/rewrites", "localhost:80")), "HTTP/1.1 200 OK");
  for (const std::string host : {"example.test", "127.0.0.1.example.test", ""})
    EXPECT_EQ(StatusOf(Ask("GET", "/rewrites", host)), "HTTP/1.1 421 Misdirected Request") << host;
}

TEST_F(VizTest, OneConnectionManyRequests) {
  Client client(server_->port());
  client.Send("GET /other HTTP/1.1\r\nHost: localhost\r\n\r\n");
  client.Send("GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  const std::string both = client.ReadAll();
  EXPECT_TRUE(both.starts_with("HTTP/1.1 404"));
  EXPECT_NE(both.find("HTTP/1.1 200 OK"), std::string::npos);
}

// Browsers open connections that they may use later.
TEST_F(VizTest, SilentConnectionsHoldNobodyUp) {
  std::vector<std::unique_ptr<Client>> silent;
  for (int i = 0; i < 10; ++i) silent.push_back(std::make_unique<Client>(server_->port()));
  EXPECT_EQ(StatusOf(Ask("GET", "/")), "HTTP/1.1 200 OK");
}

TEST_F(VizTest, NoiseAndLongHeadersAreHungUpOn) {
  for (const std::string& noise :
       {std::string("\x16\x03\x01 no HTTP\r\n\r\n"),
        "GET / HTTP/1.1\r\nHost: localhost\r\nX: " + std::string(20000, 'x') + "\r\n\r\n",
        std::string("GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello")}) {
    Client client(server_->port());
    client.Send(noise);
    EXPECT_EQ(client.ReadAll(), "");
  }
  EXPECT_EQ(StatusOf(Ask("GET", "/")), "HTTP/1.1 200 OK");
}

TEST_F(VizTest, NoMoreConnectionsThanAllowed) {
  std::vector<std::unique_ptr<Client>> silent;
  for (int i = 0; i < kConnectionsMax; ++i)
    silent.push_back(std::make_unique<Client>(server_->port()));
  EXPECT_EQ(Client(server_->port()).ReadAll(), "") << "closed at once";
  silent.clear();
  EXPECT_TRUE(test::Eventually([&] { return Ask("GET", "/").starts_with("HTTP/1.1 200"); }));
}

TEST_F(VizTest, APortThatIsTaken) {
  EXPECT_EQ(PageServer::Start(server_->port(), {}).status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace outboard::cli
