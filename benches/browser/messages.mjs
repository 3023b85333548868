// The channel's next message of this kind.
export function nextOn(channel, kind) {
  return new Promise((resolve) => {
    channel.addEventListener("message", function listen({ data }) {
      if (data.kind !== kind) return;
      channel.removeEventListener("message", listen);
      resolve(data);
    });
  });
}
