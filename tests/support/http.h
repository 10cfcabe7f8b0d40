// A little HTTP, for tests of what a server answers: whatever bytes the test sends.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

namespace outboard::test {

// Connected to "127.0.0.1:PORT"; -1: nobody listens.
inline int ConnectTo(const std::string& address) {
  const size_t colon = address.rfind(':');
  sockaddr_in to{.sin_family = AF_INET,
                 .sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(colon + 1)))),
                 .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0) return fd;
  close(fd);
  return -1;
}

// What comes until the peer closes, or nothing more comes for 10 s.
inline std::string ReadToEnd(int fd) {
  const timeval patience{.tv_sec = 10, .tv_usec = 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  std::string text;
  char bytes[4096];
  for (ssize_t count; (count = recv(fd, bytes, sizeof bytes, 0)) > 0;)
    text.append(bytes, static_cast<size_t>(count));
  return text;
}

inline std::string Ask(const std::string& address, const std::string& request) {
  const int fd = ConnectTo(address);
  if (fd < 0) return "";
  [[maybe_unused]] const ssize_t sent = send(fd, request.data(), request.size(), MSG_NOSIGNAL);
  std::string answer = ReadToEnd(fd);
  close(fd);
  return answer;
}

// The body of an answer with status 200; else "".
inline std::string Get(const std::string& address, const std::string& path,
                       const std::string& headers = "") {
  const std::string answer =
      Ask(address, "GET " + path + " HTTP/1.1\r\nHost: x\r\n" + headers + "\r\n");
  const size_t end = answer.find("\r\n\r\n");
  if (!answer.starts_with("HTTP/1.1 200 ") || end == std::string::npos) return "";
  return answer.substr(end + 4);
}

}  // namespace outboard::test
