import { Leasing } from "./leasing.jsx";

export default function Page() {
  return <Leasing />;
}
