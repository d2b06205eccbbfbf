export function whatIfView() {}
