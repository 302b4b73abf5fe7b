#pragma once

#include <poll.h>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/stream.hpp>

namespace winnow::server {

using TlsStream = boost::asio::ssl::stream<boost::asio::ip::tcp::socket>;

inline boost::asio::ip::tcp::socket& TcpSocket(boost::asio::ip::tcp::socket& stream) {
  return stream;
}
inline boost::asio::ip::tcp::socket& TcpSocket(TlsStream& stream) { return stream.next_layer(); }

// Whether the client has closed its side or reset the connection, even if unread bytes come before
// the end.
inline bool HasHungUp(boost::asio::ip::tcp::socket& socket) {
  pollfd asked = {.fd = socket.native_handle(), .events = POLLRDHUP, .revents = 0};
  return poll(&asked, 1, 0) > 0;
}

}  // namespace winnow::server
