#include "server/openai/origin_rules.h"

#include <algorithm>

namespace winnow::server {
namespace {

std::string LowerCase(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return lower;
}

// "https://Chat.example.com:443" is {"https", "chat.example.com"}.
struct Origin {
  std::string scheme, host;
};
std::string WithoutPort(std::string_view host, std::string_view port) {
  if (host.ends_with(port)) host.remove_suffix(port.size());
  return LowerCase(host);
}
const char* DefaultPort(std::string_view scheme) { return scheme == "https" ? ":443" : ":80"; }
Origin OriginFrom(std::string_view text) {
  const size_t at = text.find("://");
  if (at == std::string_view::npos) return {};  // "null"
  const std::string scheme = LowerCase(text.substr(0, at));
  return {scheme, WithoutPort(text.substr(at + 3), DefaultPort(scheme))};
}

// A proxy may speak TLS where the server does not, so the scheme can be either.
bool HasHost(const Origin& origin, std::string_view host) {
  return (origin.scheme == "http" || origin.scheme == "https") && !host.empty() &&
         origin.host == WithoutPort(host, DefaultPort(origin.scheme));
}

// The first host of the list: further proxies append theirs.
std::string_view ForwardedHost(const HttpRequest& request) {
  std::string_view host = request.Header("x-forwarded-host");
  host = host.substr(0, host.find(','));
  while (host.ends_with(' ')) host.remove_suffix(1);
  return host;
}

// Whether public DNS cannot resolve the host: addresses, names without a dot, and the domains
// reserved for machines and local networks (RFC 6761, RFC 6762, ICANN's .internal).
bool IsLocalName(std::string_view host) {
  if (host.starts_with('[')) return true;  // IPv6
  const std::string name = LowerCase(host.substr(0, host.find(':')));
  std::string_view rest = name;
  if (rest.ends_with('.')) rest.remove_suffix(1);
  if (rest.find('.') == std::string_view::npos) return true;
  if (rest.find_first_not_of("0123456789.") == std::string_view::npos) return true;
  return rest.ends_with(".localhost") || rest.ends_with(".local") || rest.ends_with(".internal");
}

}  // namespace

std::string OriginRules::Allowed(const HttpRequest& request) const {
  const std::string_view origin = request.Header("origin");
  if (origin.empty() || cors_origin_.empty()) return {};
  if (cors_origin_ == "*") return "*";
  return cors_origin_ == origin ? cors_origin_ : std::string();
}

bool OriginRules::IsKnownHost(std::string_view host) const {
  return !checks_host_ || IsLocalName(host) || cors_origin_ == "*" ||
         HasHost(OriginFrom(cors_origin_), host);
}

std::optional<ApiError> OriginRules::Check(const HttpRequest& request, Access access) const {
  if (access == Access::kRead || !Allowed(request).empty()) return std::nullopt;
  // Pages cannot forge Sec-Fetch-Site, and browsers send it only to TLS and loopback origins, which
  // rebound names are not.
  const std::string_view site = request.Header("sec-fetch-site");
  if (site == "same-origin" || site == "none") return std::nullopt;
  const std::string_view origin = request.Header("origin");
  const std::string_view host = request.Header("host");
  const bool is_other_page = origin.empty()
                                 ? site == "cross-site" || site == "same-site"
                                 : !HasHost(OriginFrom(origin), host) &&
                                       !HasHost(OriginFrom(origin), ForwardedHost(request));
  if (is_other_page) {
    return ApiError{
        .status = 403,
        .message = "requests from other origins are not allowed; start the server with " +
                   std::string(words_.cors) + " to allow one"};
  }
  // Browsers send no Origin when a page reads from its own host.
  const bool may_be_page = !origin.empty() || access == Access::kReadPrivate;
  if (!may_be_page || IsKnownHost(host)) return std::nullopt;
  return ApiError{.status = 403,
                  .message = "Host '" + std::string(host) +
                             "' is not a local name, and this server only accepts local "
                             "requests; start it with " +
                             std::string(words_.api_key) + ", or with " + std::string(words_.cors) +
                             " to allow the pages of that host"};
}

}  // namespace winnow::server
